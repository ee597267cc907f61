"""The checksum of the store beside the published vectors of HighwayHash-64."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.store.format.highway import HighwayHash, checksum, gathered, key_of, use_wide

pytestmark = pytest.mark.timeout(60)

# Hashes of b"", b"\0", b"\0\1", ... with the key of bytes 0 to 31.
VECTORS = re.findall(
    r"\w+",
    """
907A56DE22C26E53 7EAB43AAC7CDDD78 B8D0569AB0B53D62 5C6BEFAB8A463D80 F205A46893007EDA 2B8A1668E4A94541
BD4CCC325BEFCA6F 4D02AE1738F59482 E1205108E55F3171 32D2644EC77A1584 F6E10ACDB103A90B C3BBF4615B415C15
243CC2040063FA9C A89A58CE65E641FF 24B031A348455A23 40793F86A449F33B CFAB3489F97EB832 19FE67D2C8C5C0E2
04DD90A69C565CC2 75D9518E2371C504 38AD9B1141D3DD16 0264432CCD8A70E0 A9DB5A6288683390 D7B05492003F028C
205F615AEA59E51E EEE0C89621052884 1BFC1A93A7284F4F 512175B5B70DA91D F71F8976A0A2C639 AE093FEF1F84E3E7
22CA92B01161860F 9FC7007CCF035A68 A0C964D9ECD580FC 2C90F73CA03181FC 185CF84E5691EB9E 4FC1F5EF2752AA9B
F5B7391A5E0A33EB B9B84B83B4E96C9C 5E42FE712A5CD9B4 A150F2F90C3F97DC 7FA522D75E2D637D 181AD0CC0DFFD32B
3889ED981E854028 FB4297E8C586EE2D 6D064A45BB28059C 90563609B3EC860C 7AA4FCE94097C666 1326BAC06B911E08
B926168D2B154F34 9919848945B1948D A2A98FC534825EBE E9809095213EF0B6 582E5483707BC0E9 086E9414A88A6AF5
EE86B98D20F6743D F89B7FF609B1C0A7 4C7D9CC19E22C3E8 9A97005024562A6F 5DD41CF423E6EBEF DF13609C0468E227
6E0DA4F64188155A B755BA4B50D7D4A1 887A3484647479BD AB8EEBE9BF2139A0 75542C5D4CD2A6FF
""",
)

PIECES = st.lists(st.binary(max_size=300), max_size=8)


@pytest.fixture(params=[True, False], ids=["wide", "plain"], autouse=True, scope="module")
def wide(request: pytest.FixtureRequest) -> Iterator[None]:
    before = use_wide(request.param)
    yield
    use_wide(before)


@pytest.mark.parametrize("size", range(len(VECTORS)))
def test_published_vectors(size: int) -> None:
    hasher = HighwayHash(bytes(range(32)))
    hasher.update(bytes(range(size)))
    assert hasher.digest()[::-1].hex().upper() == VECTORS[size]


def test_a_longer_vector() -> None:
    hasher = HighwayHash(b"".join(n.to_bytes(8, "little") for n in (1, 2, 3, 4)))
    hasher.update(bytes(range(128, 161)))
    assert hasher.digest()[::-1].hex() == "53c516cce478cad7"


@given(PIECES)
def test_pieces_are_hashed_as_one(pieces: list[bytes]) -> None:
    whole = checksum(b"name", b"".join(pieces))
    assert checksum(b"name", *pieces) == whole
    assert gathered(b"name", *pieces) == whole


def test_a_digest_may_be_followed_by_more() -> None:
    hasher = HighwayHash(key_of(b"name"))
    hasher.update(b"one")
    assert hasher.digest() == hasher.digest() == checksum(b"name", b"one")
    hasher.update(b"two")
    assert hasher.digest() == checksum(b"name", b"onetwo")


@given(st.binary(max_size=300))
def test_a_name_is_a_key_by_its_sha256(name: bytes) -> None:
    assert key_of(name) == hashlib.sha256(name).digest()


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 31"):
        HighwayHash(bytes(31))


@given(st.integers(0, 5000), st.integers(0, 100))
def test_both_ways_of_hashing_agree(size: int, seed: int) -> None:
    data = bytes((i * 131 + seed) & 255 for i in range(size))
    found = set()
    before = use_wide(True)
    for allowed in (True, False):
        use_wide(allowed)
        found.add(checksum(b"x", data))
    use_wide(before)
    assert len(found) == 1
