"""Sets of sequences beside Python's."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gnats.store.index.seqset import SequenceSet

pytestmark = pytest.mark.timeout(120)

# Around a few nodes, and at the end of the range.
SEQS = st.one_of(st.integers(0, 10_000), st.integers(2**64 - 5000, 2**64 - 1))
LENGTHS = st.one_of(st.integers(0, 100), st.integers(1900, 2200), st.integers(4000, 5000))


def filled(seqs: set[int]) -> SequenceSet:
    s = SequenceSet()
    for seq in seqs:
        s.insert(seq)
    return s


def runs(seqs: set[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if found and found[-1][1] == seq - 1:
            found[-1] = (found[-1][0], seq)
        else:
            found.append((seq, seq))
    return found


def check_tree(data: bytes) -> list[int]:
    """Return the bases of an encoded set; require a walk of a balanced tree with right heights."""
    count, size = struct.unpack_from("<II", data, 2)
    nodes = []
    members = 0
    for i in range(count):
        at = 10 + i * 266
        base, *words = struct.unpack_from("<33Q", data, at)
        (height,) = struct.unpack_from("<H", data, at + 264)
        nodes.append((base, height))
        members += sum(w.bit_count() for w in words)
    assert members == size
    assert len(data) == 10 + 266 * count

    def walk(low: int, high: int) -> int:
        """Remove the subtree of bases in [low, high) from the front; return its height."""
        if not nodes or not low <= nodes[0][0] < high:
            return 0
        base, height = nodes.pop(0)
        left, right = walk(low, base), walk(base + 1, high)
        assert abs(left - right) <= 1
        assert height == max(left, right) + 1
        return height

    bases = sorted(base for base, _ in nodes)
    walk(0, 2**64)
    assert not nodes
    return bases


class Machine(RuleBasedStateMachine):
    """Operations on a set and on Python's own."""

    def __init__(self) -> None:
        super().__init__()
        self.set = SequenceSet()
        self.model: set[int] = set()

    @rule(seq=SEQS)
    def insert(self, seq: int) -> None:
        assert self.set.insert(seq) == (seq not in self.model)
        self.model.add(seq)

    @rule(seq=SEQS)
    def delete(self, seq: int) -> None:
        assert self.set.delete(seq) == (seq in self.model)
        self.model.discard(seq)

    @rule(first=SEQS, n=LENGTHS)
    def insert_range(self, first: int, n: int) -> None:
        last = min(first + n, 2**64 - 1)
        added = set(range(first, last + 1)) - self.model
        assert self.set.insert_range(first, last) == len(added)
        self.model |= added

    @rule(first=SEQS, n=LENGTHS)
    def delete_range(self, first: int, n: int) -> None:
        last = min(first + n, 2**64 - 1)
        gone = set(range(first, last + 1)) & self.model
        assert self.set.delete_range(first, last) == len(gone)
        self.model -= gone

    @rule(seq=SEQS)
    def absent(self, seq: int) -> None:
        following = seq
        while following in self.model:
            following += 1
        assert self.set.next_absent(seq) == following % 2**64
        before = seq
        while before in self.model and before:
            before -= 1
        assert self.set.prev_absent(seq) == (before if before not in self.model else 0)

    @rule(first=SEQS, n=LENGTHS)
    def count(self, first: int, n: int) -> None:
        last = min(first + n, 2**64 - 1)
        assert self.set.count(first, last) == len(self.model & set(range(first, last + 1)))

    @rule()
    def encode(self) -> None:
        data = self.set.encode()
        assert check_tree(data) == sorted({seq & ~2047 for seq in self.model})
        again, n = SequenceSet.decode(data + b"more")
        assert n == len(data)
        self.set = again.copy()

    @invariant()
    def same(self) -> None:
        assert len(self.set) == len(self.model)
        assert self.set.first == min(self.model, default=0)
        assert self.set.last == max(self.model, default=0)
        assert self.set.ranges() == runs(self.model)


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
test_operations = Machine.TestCase


@given(st.sets(SEQS, max_size=50), SEQS)
def test_ranges_from_somewhere(seqs: set[int], start: int) -> None:
    assert filled(seqs).ranges(start) == runs({seq for seq in seqs if seq >= start})
    assert all((seq in filled(seqs)) == (seq in seqs) for seq in [*seqs, start])


@pytest.mark.parametrize("nodes", [*range(1, 40), 1000])
def test_an_encoded_set_is_a_balanced_tree(nodes: int) -> None:
    s = filled({n * 2048 + n % 2048 for n in range(nodes)})
    assert len(check_tree(s.encode())) == nodes


def test_dense_ranges_are_small() -> None:
    s = SequenceSet()
    assert s.insert_range(1, 100_000_000) == 100_000_000
    assert s.memory < 2_000_000
    assert s.delete(50_000_000)
    assert s.ranges() == [(1, 49_999_999), (50_000_001, 100_000_000)]
    assert s.insert(50_000_000)
    assert s.delete_range(1, 100_000_000) == 100_000_000
    assert (len(s), s.memory) == (0, 0)


def version_1(nodes: dict[int, list[int]]) -> bytes:
    """Encode a set in version 1, with nodes of 4096 by base."""
    data = struct.pack("<BBII", 22, 1, len(nodes), sum(len(seqs) for seqs in nodes.values()))
    for base, seqs in nodes.items():
        words = [0] * 64
        for seq in seqs:
            words[(seq - base) // 64] |= 1 << (seq - base) % 64
        data += struct.pack("<65QH", base, *words, 1)
    return data


def test_version_1_is_read() -> None:
    data = version_1({0: [1, 2, 4095], 4096 * 5: [4096 * 5 + 64]})
    s, n = SequenceSet.decode(data)
    assert n == len(data)
    assert s.ranges() == [(1, 2), (4095, 4095), (20544, 20544)]


def test_nodes_may_begin_anywhere() -> None:
    words = [0] * 32
    words[0] = 0b11
    words[31] = 1 << 63
    for base in (100, 128):
        data = struct.pack("<BBII", 22, 2, 1, 3) + struct.pack("<33QH", base, *words, 1)
        assert SequenceSet.decode(data)[0].ranges() == [(base, base + 1), (base + 2047, base + 2047)]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d[:9],
        lambda d: d[:-1],
        lambda d: b"\x17" + d[1:],
        lambda d: d[:1] + b"\x03" + d[2:],
        lambda d: d[:2] + b"\xff\xff\xff\xff" + d[6:],
        lambda d: d[:6] + b"\x09" + d[7:],
        lambda d: d[:10] + b"\xff" * 8 + d[18:],
        lambda d: b"",
    ],
)
def test_what_is_no_set_is_refused(change) -> None:  # type: ignore[no-untyped-def]
    data = filled({1, 2, 5000}).encode()
    with pytest.raises(ValueError, match="not an encoded set"):
        SequenceSet.decode(change(data))


@settings(max_examples=500)
@given(
    st.sets(SEQS, min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), min_size=1, max_size=8),
    st.integers(0, 600),
)
def test_corrupted_sets_do_no_harm(seqs: set[int], changes: list[tuple[int, int]], end: int) -> None:
    data = bytearray(filled(seqs).encode())
    for at, value in changes:
        data[at % len(data)] = value
    try:
        s, n = SequenceSet.decode(bytes(data[: max(10, len(data) - end)]))
    except ValueError:
        return
    assert sum(last - first + 1 for first, last in s.ranges()) == len(s)
    assert n <= len(data)
