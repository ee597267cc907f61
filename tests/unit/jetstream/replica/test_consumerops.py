"""Entries of a consumer's Raft group: what is written is read again, and anything else is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.jetstream.replica import consumerops

NUMBERS = st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 127, 128, 2**63, 2**64 - 1])
TIMES = st.integers(-(2**63), 2**63 - 1)


def uvarint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def varint(number: int) -> bytes:
    return uvarint(number << 1 if number >= 0 else ~(number << 1))


@given(NUMBERS, NUMBERS, NUMBERS, TIMES)
def test_deliveries(dseq: int, sseq: int, dc: int, ts: int) -> None:
    entry = consumerops.encode_delivered(dseq, sseq, dc, ts)
    assert entry == b"\x07" + uvarint(dseq) + uvarint(sseq) + uvarint(dc) + varint(ts)
    assert consumerops.decode(entry) == ("delivered", dseq, sseq, dc, ts)
    for end in range(len(entry)):
        assert consumerops.decode(entry[:end]) is None


@given(NUMBERS, NUMBERS)
def test_acknowledgements(dseq: int, sseq: int) -> None:
    entry = consumerops.encode_acks(dseq, sseq)
    assert entry == b"\x08" + uvarint(dseq) + uvarint(sseq)
    assert consumerops.decode(entry) == ("acks", dseq, sseq, 0, 0)
    for end in range(len(entry)):
        assert consumerops.decode(entry[:end]) is None


@given(NUMBERS)
def test_skips(sseq: int) -> None:
    entry = consumerops.encode_skip(sseq)
    assert entry == b"\x0a" + struct.pack("<Q", sseq)
    assert consumerops.decode(entry) == ("skip", 0, sseq, 0, 0)
    assert consumerops.decode(entry[:-1]) is None


@given(NUMBERS, st.binary(max_size=20))
def test_resets(sseq: int, reply: bytes) -> None:
    entry = bytes([consumerops.RESET_OP]) + struct.pack("<Q", sseq) + reply
    assert consumerops.decode(entry) == ("reset", 0, sseq, 0, 0)
    assert consumerops.decode(entry[:8]) is None


@pytest.mark.parametrize("op", sorted(set(range(256)) - {7, 8, 10, 18}))
def test_what_is_not_of_a_consumer(op: int) -> None:
    assert consumerops.decode(bytes([op]) + bytes(40)) is None


@given(st.binary(max_size=60))
def test_anything(entry: bytes) -> None:
    consumerops.decode(entry)
