"""S2: round trips, every kind of tag and chunk, damaged input."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.varints import uvarint

from gnats.codec.s2 import crc, decode, decode_block, encode, encode_block, use_wide

pytestmark = pytest.mark.timeout(120)

IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
LIMIT = 64 << 20


@pytest.fixture(params=[True, False], ids=["wide", "plain"], autouse=True, scope="module")
def wide(request: pytest.FixtureRequest) -> Iterator[None]:
    before = use_wide(request.param)
    yield
    use_wide(before)


def masked(data: bytes) -> bytes:
    c = crc(data)
    return struct.pack("<I", ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def chunk(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def stream_of(block: bytes, data: bytes) -> bytes:
    return IDENTIFIER + chunk(0, masked(data) + uvarint(len(data)) + block)


def literal(data: bytes) -> bytes:
    return bytes([(len(data) - 1) << 2]) + data


def test_published_crcs() -> None:
    # RFC 3720, B.4
    assert crc(bytes(32)) == 0x8A9136AA
    assert crc(b"\xff" * 32) == 0x62A8AB43
    assert crc(bytes(range(32))) == 0x46DD794E
    assert crc(b"123456789") == 0xE3069283


RECORDS = b"".join(
    struct.pack("<IQqH", 150, seq, 1_700_000_000_000_000_000 + seq * 1000, 20)
    + b"orders.%010d" % (seq % 100)
    + b"x" * 90
    for seq in range(20_000)
)


@pytest.mark.parametrize("size", [0, 1, 31, 32, 1000, 1 << 20, (1 << 20) + 1, 3 << 20])
@pytest.mark.parametrize("kind", ["noise", "records", "zeros"])
def test_a_block_of_any_size_is_read_as_it_was_written(kind: str, size: int) -> None:
    data = {"noise": random.Random(1).randbytes(size), "records": RECORDS[:size], "zeros": bytes(size)}[kind]
    block = encode_block(data)
    assert decode_block(block, LIMIT) == data
    assert kind == "noise" or len(block) < max(64, len(data) // 4)


@given(st.binary(max_size=300).map(lambda data: data * 3))
def test_a_block_of_anything_is_read_as_it_was_written(data: bytes) -> None:
    assert decode_block(encode_block(data), LIMIT) == data
    with pytest.raises(ValueError, match="limit" if data else "damaged"):
        decode_block(encode_block(data), len(data) - 1) if data else decode_block(b"", LIMIT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"a",
        b"a" * 31,
        b"a" * 32,
        b"a" * 100_000,
        b"ab" * 5000,
        bytes(range(256)) * 300,
        RECORDS,
        random.Random(1).randbytes(100_000),
        random.Random(1).randbytes(70_000) * 3,
        RECORDS[: (1 << 20) - 1] + RECORDS[: (1 << 20) + 2],
    ],
)
def test_round_trips(data: bytes) -> None:
    packed = encode(data)
    assert packed.startswith(IDENTIFIER)
    assert len(packed) <= len(data) + 10 + 8 * (len(data) // (1 << 20) + 1)
    assert decode(packed, len(data)) == data


def test_repetitive_records_become_small() -> None:
    assert len(encode(RECORDS)) < len(RECORDS) / 6


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=60), st.integers(1, 400)), max_size=30), st.randoms()
)
def test_round_trips_of_repetitions(parts: list[tuple[bytes, int]], order: random.Random) -> None:
    pieces = [part * n for part, n in parts] * 2
    order.shuffle(pieces)
    data = b"".join(pieces)
    assert decode(encode(data), LIMIT) == data


@pytest.mark.parametrize(
    "size", [4, 8, 9, 11, 12, 60, 64, 65, 68, 263, 264, 300, 65794, 65796, 65797, 200_000]
)
@pytest.mark.parametrize("distance", [40, 2047, 2048, 65535, 65536, 300_000])
def test_matches_of_all_lengths_and_distances(size: int, distance: int) -> None:
    noise = random.Random(size * distance).randbytes(distance)
    once = noise + (noise * (size // distance + 1))[:size]
    data = once + b"!" + once + random.Random(2).randbytes(50)
    assert decode(encode(data), LIMIT) == data


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (literal(b"abc"), b"abc"),
        (b"\xf0\x02abc", b"abc"),
        (b"\xf4\x02\x00abc", b"abc"),
        (b"\xf8\x02\x00\x00abc", b"abc"),
        (b"\xfc\x02\x00\x00\x00abc", b"abc"),
        # one byte of offset, with 3 bits more in the tag
        (literal(b"abcd") + b"\x01\x04", b"abcdabcd"),
        (literal(b"abcd") + b"\x1d\x04", b"abcd" + b"abcdabcdabc"),
        (literal(b"a") + b"\x01\x01", b"a" * 5),
        # two and four bytes of offset
        (literal(b"abcd") + b"\x0e\x02\x00", b"abcdcdcd"),
        (literal(b"abcd") + b"\x0f\x02\x00\x00\x00", b"abcdcdcd"),
        (literal(b"ab") + b"\x02\x02\x00", b"aba"),
        # the last offset again, with each encoding of a length
        (literal(b"abcd") + b"\x02\x04\x00" + b"\x01\x00", b"abcd" + b"abcda"[:1] + b"bcda"),
        (literal(b"ab") + b"\x06\x02\x00" + b"\x11\x00", b"abab" + b"abababab"),
        (literal(b"ab") + b"\x06\x02\x00" + b"\x15\x00\x02", b"abab" + b"ab" * 5),
        (literal(b"ab") + b"\x06\x02\x00" + b"\x19\x00\x00\x00", b"abab" + b"ab" * 130),
        (literal(b"ab") + b"\x06\x02\x00" + b"\x1d\x00\x00\x00\x00", b"abab" + b"ab" * 32770),
    ],
)
def test_tags(tags: bytes, expected: bytes) -> None:
    assert decode(stream_of(tags, expected), LIMIT) == expected


@pytest.mark.parametrize("offset", range(1, 40))
def test_overlapping_copies(offset: int) -> None:
    start = bytes(range(offset))
    expected = (start * 100)[: offset + 64]
    tags = literal(start) + b"\xfe" + struct.pack("<H", offset)
    assert decode(stream_of(tags, expected), LIMIT) == expected
    more = expected + b"tail" * 8
    assert decode(stream_of(tags + literal(b"tail" * 8), more), LIMIT) == more


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x00",  # the last offset before there was one
        literal(b"a") + b"\x01\x02",  # before the beginning
        literal(b"a") + b"\x02\x00\x00",
        literal(b"a") + b"\x03\x00\x00\x00\x00",
        literal(b"a") + b"\x03\xff\xff\xff\xff",
        b"\xf0",
        b"\xfc\xff\xff\xff\xff",
        b"\x0cabc",
        literal(b"a") + b"\x01",
        literal(b"a") + b"\x02\x01",
        literal(b"a") + b"\x03\x01\x00\x00",
        literal(b"ab") + b"\x02\x01\x00" + b"\x15\x00",
        literal(b"ab") + b"\x02\x01\x00" + b"\x1d\x00\xff\xff\xff",
        literal(b"abcdefgh"),
        b"",
    ],
)
def test_tags_that_cannot_be(tags: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode(stream_of(tags, b"abcd"), LIMIT)


def test_chunks() -> None:
    data = b"some data"
    block = chunk(0, masked(data) + uvarint(len(data)) + literal(data))
    plain = chunk(1, masked(data) + data)
    skipped = chunk(0x80, b"x") + chunk(0x99, b"index") + chunk(0xFD, b"") + chunk(0xFE, bytes(100))
    assert decode(IDENTIFIER + skipped + block + IDENTIFIER + plain + skipped, LIMIT) == data * 2
    assert decode(chunk(0xFF, b"sNaPpY") + block, LIMIT) == data
    assert decode(b"", LIMIT) == decode(IDENTIFIER, LIMIT) == b""


@pytest.mark.parametrize(
    "stream",
    [
        chunk(1, masked(b"x") + b"x"),
        b"\xff",
        chunk(0xFF, b"S2sTwX"),
        chunk(0xFF, b"S2sTwO\0"),
        IDENTIFIER + chunk(2, b""),
        IDENTIFIER + chunk(0x7F, b""),
        IDENTIFIER + chunk(1, b"\0\0\0"),
        IDENTIFIER + chunk(1, masked(b"y") + b"x"),
        IDENTIFIER + chunk(0, masked(b"")),
        IDENTIFIER + chunk(0, masked(b"") + b"\xff" * 11),
        IDENTIFIER + chunk(0, masked(b"") + uvarint((4 << 20) + 1)),
        IDENTIFIER + chunk(1, masked(b"x") + b"x")[:-1],
        IDENTIFIER + b"\0\0\0",
    ],
)
def test_chunks_that_cannot_be(stream: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode(stream, LIMIT)


def test_what_a_stream_stands_for_is_limited() -> None:
    bomb = IDENTIFIER + chunk(0, masked(b"") + uvarint(4 << 20)) * 1000
    with pytest.raises(ValueError, match="limit"):
        decode(bomb, LIMIT)
    with pytest.raises(ValueError, match="limit"):
        decode(encode(b"x" * 100), 99)


PACKED = encode(RECORDS[:3000])


@settings(max_examples=1000)
@given(st.lists(st.tuples(st.integers(14, len(PACKED) - 1), st.integers(0, 255)), min_size=1, max_size=5))
def test_damage_is_noticed(changes: list[tuple[int, int]]) -> None:
    data = bytearray(PACKED)
    for at, value in changes:
        data[at] = value
    if bytes(data) != PACKED:
        try:
            assert decode(bytes(data), LIMIT) == RECORDS[:3000]
        except ValueError as error:
            assert "damaged" in str(error)


@settings(max_examples=1000)
@given(st.binary(max_size=200), st.integers(0, 300))
def test_random_blocks_do_no_harm(block: bytes, size: int) -> None:
    stream = IDENTIFIER + chunk(0, b"\0\0\0\0" + uvarint(size) + block)
    try:
        decode(stream, LIMIT)
    except ValueError as error:
        assert "damaged" in str(error)
