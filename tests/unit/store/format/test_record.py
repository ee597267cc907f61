"""Records of block files."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.store.format.highway import checksum, use_wide
from gnats.store.format.record import decode, encode

pytestmark = pytest.mark.timeout(60)

BLOCK = b"ORDERS-1"


@pytest.fixture(params=[True, False], ids=["wide", "plain"], autouse=True, scope="module")
def wide(request: pytest.FixtureRequest) -> Iterator[None]:
    before = use_wide(request.param)
    yield
    use_wide(before)


SUBJECTS = st.binary(max_size=80)
TS = st.integers(-(2**63), 2**63 - 1)


@given(st.integers(1, 2**62 - 1), TS, SUBJECTS, st.binary(max_size=300), st.binary(max_size=700))
def test_a_record_is_read_as_written(seq: int, ts: int, subject: bytes, hdr: bytes, msg: bytes) -> None:
    data = encode(BLOCK, seq, ts, subject, hdr, msg)
    assert len(data) == 22 + len(subject) + (4 + len(hdr) if hdr else 0) + len(msg) + 8
    assert decode(BLOCK, b"...." + data + b"more", 4) == ("message", seq, ts, subject, hdr, msg, len(data))


def test_the_layout() -> None:
    data = encode(BLOCK, 7, 9, b"a.b", b"NATS/1.0\r\n\r\n", b"payload")
    assert data[:22] == struct.pack("<IQqH", len(data) | 1 << 31, 7, 9, 3)
    assert data[22:-8] == b"a.b" + struct.pack("<I", 12) + b"NATS/1.0\r\n\r\npayload"
    assert data[-8:] == checksum(BLOCK, data[4:20], b"a.b", b"NATS/1.0\r\n\r\npayload")


@given(SUBJECTS, st.binary(max_size=100), st.binary(max_size=100))
def test_the_checksum(subject: bytes, hdr: bytes, msg: bytes) -> None:
    data = encode(BLOCK, 7, 9, subject, hdr, msg)
    assert data[-8:] == checksum(BLOCK, data[4:20], subject, hdr, msg)


@pytest.mark.parametrize(("kind", "bit"), [("erased", 63), ("tombstone", 62)])
def test_marks(kind: str, bit: int) -> None:
    data = encode(BLOCK, 7, 9, b"", b"", b"", kind)
    assert data[:22] == struct.pack("<IQqH", 30, 7 | 1 << bit, 9, 0)
    assert decode(BLOCK, data) == (kind, 7, 9, b"", b"", b"", 30)


def test_sequence_0_is_no_message() -> None:
    assert decode(BLOCK, encode(BLOCK, 0, 9, b"", b"", b""))[0] == "erased"


def test_the_key_is_the_blocks() -> None:
    with pytest.raises(ValueError, match="checksum"):
        decode(b"ORDERS-2", encode(BLOCK, 1, 1, b"a", b"", b"x"))


@given(st.integers(0, 200))
def test_a_part_of_a_record_is_not_one(size: int) -> None:
    data = encode(BLOCK, 1, 1, b"subject", b"headers", b"x" * 160)
    assert size < len(data)
    with pytest.raises(EOFError):
        decode(BLOCK, data[:size])


def test_every_bit_is_checked() -> None:
    data = encode(BLOCK, 1, 1, b"subject", b"headers", b"payload")
    whole = decode(BLOCK, data)
    for bit in range(len(data) * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            record = decode(BLOCK, bytes(changed))
        except (EOFError, ValueError):
            continue
        # No checksum covers where the headers end, in nats-server's format.
        assert 29 <= bit // 8 < 33
        assert record[4] + record[5] == whole[4] + whole[5]


@pytest.mark.parametrize("length", [0, 29, 32 * 1024 * 1024 + 1, 0x7FFFFFFF])
def test_lengths_that_cannot_be(length: int) -> None:
    data = bytearray(encode(BLOCK, 1, 1, b"a", b"", b"x"))
    struct.pack_into("<I", data, 0, length)
    with pytest.raises(ValueError, match="lengths"):
        decode(BLOCK, bytes(data))


def test_the_body_of_an_erased_record_means_nothing() -> None:
    body = struct.pack("<I", 10**6) + b"random"
    header = struct.pack("<IQqH", 30 + len(body) | 1 << 31, 5 | 1 << 63, 0, 0)
    data = header + body + checksum(BLOCK, header[4:20], body[4:])
    assert decode(BLOCK, data)[:2] == ("erased", 5)


def test_too_large() -> None:
    with pytest.raises(ValueError, match="too large"):
        encode(BLOCK, 1, 1, b"s" * 65536, b"", b"")
    with pytest.raises(ValueError, match="too large"):
        encode(BLOCK, 1, 1, b"s", b"", bytes(32 * 1024 * 1024))


@settings(max_examples=500)
@given(st.binary(max_size=120), st.integers(0, 200), st.booleans())
def test_random_bytes_do_no_harm(data: bytes, length: int, headers: bool) -> None:
    data = struct.pack("<I", length | headers << 31) + data
    with pytest.raises((EOFError, ValueError)):
        decode(BLOCK, data)
