"""Compressed block files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.varints import uvarint
from support.written import Written

from gnats.store.format.packing import compress_block, decompress_block

pytestmark = pytest.mark.timeout(120)

IDENTIFIER = b"\xff\x06\x00\x00S2sTwO"
LIMIT = 64 << 20


@given(st.binary(min_size=8, max_size=400), st.integers(1, 50))
def test_block_files(data: bytes, times: int) -> None:
    data *= times
    packed = compress_block(data)
    assert packed.startswith(b"cmp\x01" + uvarint(len(data)) + IDENTIFIER)
    assert packed[-8:] == data[-8:]
    assert decompress_block(packed, LIMIT) == data
    assert decompress_block(b"cmp\0" + uvarint(len(data)) + data, LIMIT) == data
    if len(data) > 8:
        with pytest.raises(ValueError, match="limit"):
            decompress_block(packed, len(data) - 9)


@pytest.mark.parametrize(
    "data", [b"", b"cmp\x01", b"cmp\x02\x08" + bytes(8), b"cmp\x01\x08" + bytes(7), b"cmx\x01\x08" + bytes(8)]
)
def test_what_is_no_block_file(data: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decompress_block(data, LIMIT)


def test_a_block_is_8_bytes_at_least() -> None:
    with pytest.raises(ValueError, match="S2"):
        compress_block(b"7 bytes")


def test_what_nats_server_compressed(clear: Written) -> None:
    blocks = clear.blocks("SQUEEZED")
    packed = [path for path in blocks if path.read_bytes().startswith(b"cmp\x01")]
    assert len(packed) >= len(blocks) - 1 > 0
    for path in packed:
        data = decompress_block(path.read_bytes(), LIMIT)
        assert decompress_block(compress_block(data), LIMIT) == data
        assert len(compress_block(data)) < len(path.read_bytes()) * 1.2
