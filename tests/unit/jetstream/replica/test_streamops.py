"""Entries of a stream's Raft group: what is written is read again, and anything else is refused."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.codec import s2
from gnats.jetstream.replica import streamops

NUMBERS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])
TIMES = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.binary(max_size=300) | st.just(b"x" * 65535)
PAYLOADS = (
    st.binary(max_size=300)
    | st.integers(8000, 8300).map(lambda n: b"ab" * (n // 2))
    | st.randoms().map(lambda rng: rng.randbytes(9000))
)
BATCHES = st.none() | st.tuples(st.binary(min_size=1, max_size=64), NUMBERS, st.booleans())
LARGE = streamops.write_stream_msg(b"s", b"r", b"h", b"x" * 10000, 7, 8, True, (b"id", 300, True))


def plain(msg: streamops.StreamMsg) -> bytes:
    subject, reply, hdr, payload, seq, ts, sourced, _ = msg
    out = struct.pack("<Qq", seq, ts)
    for text in subject, reply, hdr:
        out += struct.pack("<H", len(text)) + text
    return out + struct.pack("<I", len(payload)) + payload + bytes([sourced])


@given(st.tuples(TEXTS, TEXTS, TEXTS, PAYLOADS, NUMBERS, TIMES, st.booleans(), BATCHES))
def test_messages(msg: streamops.StreamMsg) -> None:
    data = streamops.write_stream_msg(*msg)
    assert streamops.read_stream_msg(data) == msg
    if batch := msg[7]:
        head = bytes([17 if batch[2] else 16]) + struct.pack("<H", len(batch[0])) + batch[0]
        assert data.startswith(head)
        data = data[len(head) :]
        while data[0] >= 0x80:
            data = data[1:]
        data = data[1:]
    expected = plain(msg)
    if data[0] == 14:
        assert sum(map(len, msg[:4])) > 8192 and len(data) <= len(expected)
        assert s2.decode_block(data[1:], 1 << 20) == expected
    else:
        assert data == b"\x04" + expected


def test_a_message_without_flags() -> None:
    """Servers before 2.10 write none."""
    msg = b"s", b"", b"", b"m", 1, 2, False, None
    assert streamops.read_stream_msg(streamops.write_stream_msg(*msg)[:-1]) == msg


def test_what_is_too_long() -> None:
    for lengths in (65536, 0, 0), (0, 65536, 0), (0, 0, 65536):
        with pytest.raises(ValueError, match="too long for an entry"):
            streamops.write_stream_msg(*(b"x" * n for n in lengths), b"", 1, 2)


@pytest.mark.parametrize("size", [0, 1 << 27, 1 << 63])
def test_a_block_of_an_impossible_size(size: int) -> None:
    block = b""
    while size >= 0x80:
        block += bytes([size & 0x7F | 0x80])
        size >>= 7
    with pytest.raises(ValueError, match="not a stream's message"):
        streamops.read_stream_msg(b"\x0e" + block + bytes([size]) + b"rest")


def test_what_is_cut_or_damaged() -> None:
    """Nothing but ValueError comes of it. The end of a message without a batch may be cut: its flags."""
    for end in range(len(LARGE)):
        with pytest.raises(ValueError, match="not a stream's message"):
            streamops.read_stream_msg(LARGE[:end])
    rng = random.Random(1)
    small = streamops.write_stream_msg(
        b"subject", b"reply", b"header", b"payload", 7, 8, False, (b"id", 300, False)
    )
    for _ in range(20_000):
        data = bytearray(rng.choice([LARGE, small]))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            streamops.read_stream_msg(bytes(data[: rng.randint(0, len(data))]))
        except ValueError as refused:
            assert str(refused) == "not a stream's message"
