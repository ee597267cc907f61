"""The state files: of this version, of older ones, and corrupted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.varints import uvarint, varint
from support.written import Written

from gnats.go.text import SECOND
from gnats.store.format.codec import (
    decode_consumer,
    decode_index,
    encode_consumer,
    encode_index,
)
from gnats.store.format.highway import checksum
from gnats.store.index.seqset import SequenceSet

pytestmark = pytest.mark.timeout(120)

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)


def sequences(seqs: set[int]) -> SequenceSet:
    found = SequenceSet()
    for seq in seqs:
        found.insert(seq)
    return found


STATES = st.tuples(U64, U64, U64, I64, U64, I64)
SUBJECTS = st.dictionaries(
    st.text(st.sampled_from("ab.1"), min_size=1, max_size=20)
    .filter(lambda s: all(s.split(".")))
    .map(str.encode),
    st.tuples(U64, U32, U32),
    max_size=20,
).map(lambda subjects: [(subject, *numbers) for subject, numbers in sorted(subjects.items())])
BLOCKS = st.lists(st.tuples(U32, U64, U64, I64, U64, I64, st.sets(U64, max_size=5), U64, U64), max_size=5)
LAST = st.tuples(U32, st.binary(min_size=8, max_size=8))


def plain(blocks: list[tuple[Any, ...]]) -> list[tuple[object, ...]]:
    return [(*b[:6], b[6].ranges(), *b[7:]) for b in blocks]


@given(STATES, SUBJECTS, BLOCKS, LAST)
def test_an_index_is_read_as_written(state, subjects, blocks, last) -> None:  # type: ignore[no-untyped-def]
    blocks = [(*b[:6], sequences(b[6]), *b[7:]) for b in blocks]
    read = decode_index(encode_index(state, subjects, blocks, last))
    assert (read[0], read[1], plain(read[2]), read[3]) == (state, subjects, plain(blocks), last)


def test_the_layout_of_an_index() -> None:
    deleted = sequences({5})
    data = encode_index(
        (3, 300, 4, 1000, 7, 3000),
        [(b"a.b", 3, 1, 2)],
        [(2, 300, 4, 1000, 7, 3000, deleted, 1, 0)],
        (2, b"checksum"),
    )
    of_stream = uvarint(3) + uvarint(300) + uvarint(4) + varint(1000) + uvarint(7) + varint(3000)
    of_subjects = uvarint(1) + uvarint(3) + b"a.b" + uvarint(3) + uvarint(1) + uvarint(2)
    of_block = uvarint(2) + uvarint(300) + uvarint(4) + varint(0) + uvarint(7) + varint(2000) + uvarint(1)
    of_blocks = uvarint(1) + of_block + uvarint(1) + uvarint(0) + deleted.encode()
    assert data == b"\x0b\x04" + of_stream + of_subjects + of_blocks + uvarint(2) + b"checksum"


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_versions_of_the_index(version: int) -> None:
    subjects = b"".join(
        uvarint(len(subject))
        + subject
        + uvarint(msgs)
        + uvarint(first)
        + (uvarint(last) if msgs > 1 or version >= 4 else b"")
        for subject, msgs, first, last in [(b"a", 1, 3, 3), (b"b", 2, 3, 4)]
    )
    extra = uvarint(9) * (version >= 2) + uvarint(8) * (version >= 3)
    block = uvarint(4) + uvarint(30) + uvarint(1) + varint(5) + uvarint(1) + varint(6) + uvarint(0) + extra
    state = uvarint(1) + uvarint(30) + uvarint(1) + varint(100) + uvarint(1) + varint(101)
    data = bytes([11, version]) + state + uvarint(2) + subjects + uvarint(1) + block
    data += uvarint(4) + b"checksum"
    read = decode_index(data)
    assert read[0] == (1, 30, 1, 100, 1, 101)
    assert read[1] == [(b"a", 1, 3, 3), (b"b", 2, 3, 4)]
    assert plain(read[2]) == [(4, 30, 1, 105, 1, 106, [], 9 * (version >= 2), 8 * (version >= 3))]
    assert read[3] == (4, b"checksum")


INDEX = encode_index(
    (3, 300, 4, 1000, 7, 3000),
    [(b"a.b", 3, 1, 2), (b"c", 1, 1, 1)],
    [(1, 30, 1, 2, 3, 4, SequenceSet(), 0, 0), (2, 300, 4, 1000, 7, 3000, sequences({5, 9000}), 1, 0)],
    (2, b"checksum"),
)


@given(st.integers(0, len(INDEX) - 1))
def test_a_part_of_an_index_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="not an index"):
        decode_index(INDEX[:size])


@settings(max_examples=1000)
@given(st.lists(st.tuples(st.integers(0, len(INDEX) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_corrupted_index_does_no_harm(changes: list[tuple[int, int]]) -> None:
    data = bytearray(INDEX)
    for at, value in changes:
        data[at] = value
    try:
        read = decode_index(bytes(data))
    except ValueError:
        return
    assert decode_index(encode_index(*read))[:2] == read[:2]


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 10**9])
def test_counts_that_cannot_be(number: int) -> None:
    start = bytes([11, 4]) + bytes(6)
    for data in (start + uvarint(number), start + b"\0" + uvarint(number), start + b"\1" + uvarint(number)):
        with pytest.raises(ValueError, match="not an index"):
            decode_index(data + bytes(100))
    with pytest.raises(ValueError, match="not the state"):
        decode_consumer(bytes([22, 2]) + bytes(4) + uvarint(number) + bytes(100))


def test_the_index_that_nats_server_wrote(clear: Written) -> None:
    for stream, messages in clear.messages.items():
        data = (clear.stream(stream) / "msgs" / "index.db").read_bytes()
        payload, stored = data[:-8], data[-8:]
        assert stored == checksum(stream.encode(), payload)
        state, subjects, blocks, last = decode_index(payload)
        assert (state[0], state[2], state[4]) == (len(messages), min(messages), 800)
        counts: dict[bytes, int] = {}
        for subject, _, _ in messages.values():
            counts[subject] = counts.get(subject, 0) + 1
        assert [(s[0], s[1]) for s in subjects] == sorted(counts.items())
        assert [b[0] for b in blocks] == [int(path.stem) for path in clear.blocks(stream)]
        deleted = {seq for b in blocks for first, end in b[6].ranges() for seq in range(first, end + 1)}
        assert deleted == {seq for seq in range(min(messages), 800) if seq not in messages}
        ttls = sum(b"Nats-TTL" in m[1] for m in messages.values())
        assert ttls <= sum(b[7] for b in blocks) <= ttls + len(clear.deleted[stream])
        final = clear.blocks(stream)[-1]
        assert last == (int(final.stem), final.read_bytes()[-8:])
        # nats-server writes subjects in another order.
        again = encode_index(state, subjects, blocks, last)
        assert len(again) == len(payload)
        assert again[:2] == payload[:2]


PAIRS = st.tuples(st.integers(0, 2**62), st.integers(0, 2**62))
BEHIND = st.integers(1, 2**62)


@given(
    PAIRS,
    st.lists(st.tuples(BEHIND, BEHIND, st.integers(0, 9 * 10**9)), max_size=9),
    st.lists(st.tuples(BEHIND, st.integers(1, 2**64 - 1)), max_size=9),
    st.integers(0, 2**62),
)
def test_a_consumer_is_read_as_written(floor, pending, redelivered, now) -> None:  # type: ignore[no-untyped-def]
    pending = [(floor[1] + s, floor[0] + c, t * SECOND) for s, c, t in pending]
    redelivered = [(floor[1] + s, n) for s, n in redelivered]
    delivered = (
        max([floor[0], *(c for _, c, _ in pending)]),
        max([floor[1], *(s for s, _, _ in pending), *(s for s, _ in redelivered)]),
    )
    delivered = min(delivered[0], 2**63 - 1), min(delivered[1], 2**63 - 1)
    pending = [each for each in pending if each[0] <= delivered[1] and each[1] <= delivered[0]]
    redelivered = [each for each in redelivered if each[0] <= delivered[1]]
    data = encode_consumer(delivered, floor, pending, redelivered, now)
    assert decode_consumer(data) == (delivered, floor, pending, redelivered)


def test_the_layout_of_a_consumer() -> None:
    data = encode_consumer((9, 109), (5, 103), [(105, 7, 50 * SECOND + 1)], [(105, 2)], 60 * SECOND)
    pending = varint(60) + bytes([2, 2]) + varint(10)
    assert data == bytes([22, 2, 5, 103, 9, 109, 1]) + pending + bytes([1, 2, 2])


def test_version_1_of_a_consumer() -> None:
    pending = bytes([1]) + varint(50) + bytes([2]) + varint(3)
    data = bytes([22, 1, 5, 103 - 3, 4, 7]) + pending + bytes([0])
    assert decode_consumer(data) == ((8, 106), (5, 100), [(102, 0, 53 * SECOND)], [])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x16",
        b"\x16\x02\0\0\0",
        b"\x16\x03" + bytes(6),
        b"\x15\x02" + bytes(6),
        b"\x16\x02\0" + uvarint(1 << 63) + bytes(4),
        b"\x16\x02\0\0\0" + uvarint(1 << 63) + bytes(2),
        b"\x16\x02" + bytes(4) + b"\1\0\0\0\0\0",
    ],
)
def test_what_is_no_consumer_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not the state"):
        decode_consumer(data)


@settings(max_examples=500)
@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=6), st.integers(0, 60))
def test_a_corrupted_consumer_does_no_harm(changes: list[tuple[int, int]], end: int) -> None:
    pending = [(i, i, i * SECOND) for i in range(10, 20)]
    data = bytearray(encode_consumer((20, 20), (9, 9), pending, [(11, 4), (12, 5)], 50 * SECOND))
    for at, value in changes:
        data[at % len(data)] = value
    try:
        _, _, pending, redelivered = decode_consumer(bytes(data[: len(data) - end]))
    except ValueError:
        return
    assert len(pending) + len(redelivered) <= len(data)


def test_the_consumers_that_nats_server_wrote(clear: Written) -> None:
    for stream in clear.messages:
        consumers = clear.stream(stream) / "obs"
        assert decode_consumer((consumers / "IDLE" / "o.dat").read_bytes()) == ((0, 0), (0, 0), [], [])
        delivered, floor, pending, redelivered = decode_consumer((consumers / "BUSY" / "o.dat").read_bytes())
        assert delivered[0] == 23
        assert floor == (3, 3)
        in_flight = {seq for seq in (*range(4, 20), 40) if (seq - 1) % 4}
        assert {seq for seq, _, _ in pending} <= set(range(4, 50))
        assert {seq for seq, _, _ in pending} & set(range(4, 20)) == in_flight & set(range(4, 20))
        assert redelivered
        assert all(t > 1_700_000_000 * SECOND and t % SECOND == 0 for _, _, t in pending)
