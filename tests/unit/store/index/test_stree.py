"""The subject tree beside a dictionary."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gnats.core.subjects.subject import literal_match
from gnats.store.index.stree_probe import SubjectTree, any_matches

pytestmark = pytest.mark.timeout(120)

TOKENS = st.text(st.sampled_from("ab1*>é\0"), min_size=1, max_size=3)
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(lambda tokens: ".".join(tokens).encode())
FILTERS = st.tuples(
    st.lists(st.one_of(st.just("*"), st.sampled_from(["a", "b", "aa", "1", "ab"])), min_size=1, max_size=4),
    st.booleans(),
).map(lambda f: ".".join([*f[0], ">"] if f[1] else f[0]).encode())


def matches(subject: bytes, filters: list[bytes]) -> bool:
    return any(literal_match(subject, f) for f in filters)


class Machine(RuleBasedStateMachine):
    """Operations on a tree and on a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = SubjectTree()
        self.model: dict[bytes, int] = {}

    @rule(subject=SUBJECTS, value=st.integers(0, 2**64 - 1))
    def insert(self, subject: bytes, value: int) -> None:
        assert self.tree.insert(subject, value) == self.model.get(subject)
        self.model[subject] = value

    @rule(prefix=SUBJECTS, n=st.integers(1, 256))
    def insert_many(self, prefix: bytes, n: int) -> None:
        for i in range(n):
            subject = prefix + bytes([i if i != 46 else 0])
            assert self.tree.insert(subject, i) == self.model.get(subject)
            self.model[subject] = i

    @rule(subject=SUBJECTS)
    def delete(self, subject: bytes) -> None:
        assert self.tree.delete(subject) == self.model.pop(subject, None)

    @rule(data=st.data())
    def delete_some(self, data: st.DataObject) -> None:
        if self.model:
            for subject in data.draw(st.lists(st.sampled_from(sorted(self.model)), unique=True)):
                assert self.tree.delete(subject) == self.model.pop(subject)

    @rule(keep=st.integers(0, 60))
    def delete_most(self, keep: int) -> None:
        for subject in sorted(self.model)[keep:]:
            assert self.tree.delete(subject) == self.model.pop(subject)

    @rule(subject=SUBJECTS)
    def find(self, subject: bytes) -> None:
        assert self.tree.find(subject) == self.model.get(subject)

    @rule(filters=st.lists(st.one_of(FILTERS, SUBJECTS), min_size=1, max_size=5))
    def match(self, filters: list[bytes]) -> None:
        filters = [f for f in filters if b">" not in f[:-1]]
        if filters:
            expected = [(s, v) for s, v in sorted(self.model.items()) if matches(s, filters)]
            assert self.tree.match(filters) == expected
            if len(filters) == 1:
                assert self.tree.count(filters[0]) == len(expected)

    @invariant()
    def same(self) -> None:
        assert len(self.tree) == len(self.model)
        assert self.tree.match([]) == sorted(self.model.items())
        assert self.tree.subject_bytes == sum(map(len, self.model))
        assert bool(self.tree.memory) == bool(self.model)


Machine.TestCase.settings = settings(max_examples=80, stateful_step_count=30)
test_operations = Machine.TestCase


@given(st.sets(SUBJECTS, max_size=60), st.lists(FILTERS, min_size=1, max_size=8))
def test_filters(subjects: set[bytes], filters: list[bytes]) -> None:
    tree = SubjectTree()
    for i, subject in enumerate(sorted(subjects)):
        tree.insert(subject, i)
    assert [s for s, _ in tree.match(filters)] == sorted(s for s in subjects if matches(s, filters))


BRANCHING = st.lists(
    st.lists(st.sampled_from(["*", "*", "a", "ab", "b", "-", "*a", ">a"]), min_size=1, max_size=5),
    min_size=1,
    max_size=40,
).map(lambda filters: [".".join(f).encode() for f in filters])
"""Filters that have beginnings in common, of which a subject may match several at once."""


@given(st.sets(SUBJECTS, max_size=60), BRANCHING, st.lists(FILTERS, max_size=3), st.randoms())
@settings(max_examples=400)
def test_filters_with_the_same_beginnings(
    subjects: set[bytes], filters: list[bytes], others: list[bytes], order: random.Random
) -> None:
    tree = SubjectTree()
    filters = [*filters, *others, *filters[:3]]
    order.shuffle(filters)
    subjects |= {f.replace(b"*", b"a").replace(b">", b"b.a") for f in filters}
    subjects |= {f.replace(b"*", b"-") for f in filters if b">" not in f}
    for i, subject in enumerate(sorted(subjects)):
        tree.insert(subject, i)
    assert [s for s, _ in tree.match(filters)] == sorted(s for s in subjects if matches(s, filters))
    for subject in subjects:
        assert any_matches(filters, subject) == matches(subject, filters)


def test_nodes_grow_and_shrink() -> None:
    tree = SubjectTree()
    subjects = [b"n.%c" % i for i in range(256) if i != 46] + [b"n."]
    order = random.Random(1)
    for _ in range(20):
        order.shuffle(subjects)
        for n, subject in enumerate(subjects):
            tree.insert(subject, n)
            assert tree.find(subject) == n
        order.shuffle(subjects)
        for n, subject in enumerate(subjects):
            assert tree.delete(subject) is not None
            assert tree.find(subject) is None
            assert [s for s, _ in tree.match([])] == sorted(subjects[n + 1 :])
    assert tree.memory == 0


def test_subjects_that_begin_with_each_other() -> None:
    tree = SubjectTree()
    for n in range(1, 3000):
        tree.insert(b"a" * n, n)
    assert tree.count(b"*") == 2999
    assert tree.match([b"a" * 2000]) == [(b"a" * 2000, 2000)]
    assert [v for _, v in tree.match([])] == list(range(1, 3000))
    for n in range(1, 3000):
        assert tree.delete(b"a" * n) == n
    assert len(tree) == 0


def test_many_filters() -> None:
    tree = SubjectTree()
    for i in range(2000):
        tree.insert(b"orders.%d.new" % i, i)
    filters = [b"orders.%d.*" % i for i in range(0, 2000, 7)] + [b"orders.*.old", b"orders.1.>", b"x.>"]
    expected = sorted([*range(0, 2000, 7), 1])
    assert sorted(v for _, v in tree.match(filters)) == expected
    assert [i for i in range(10) if any_matches(filters, b"orders.%d.new" % i)] == [0, 1, 7]


def test_no_more_filters_are_followed_than_differ() -> None:
    tree = SubjectTree()
    for i in range(20_000):
        tree.insert(b"orders.%d.new" % i, i)
    filters = [b"orders.*.old%d" % i for i in range(10_000)]
    assert tree.match([*filters, b"orders.*.new"]) == tree.match([b"orders.>"])
    assert tree.match(filters) == []


@pytest.mark.parametrize("subject", [b"", bytes(65536)])
def test_subjects_that_cannot_be_kept(subject: bytes) -> None:
    tree = SubjectTree()
    with pytest.raises(ValueError, match="bytes"):
        tree.insert(subject, 1)
    assert tree.find(subject) is None
    assert tree.delete(subject) is None


def test_the_longest_subject() -> None:
    tree = SubjectTree()
    tree.insert(b"s" * 65535, 1)
    tree.insert(b"s" * 65534 + b"t", 2)
    assert tree.find(b"s" * 65535) == 1
    assert tree.count(b"*") == 2
    assert tree.delete(b"s" * 65535) == 1
    assert tree.match([]) == [(b"s" * 65534 + b"t", 2)]


def test_memory_is_used_again() -> None:
    tree = SubjectTree()
    for i in range(10_000):
        tree.insert(b"s.%d" % i, i)
    held = tree.memory
    for _ in range(5):
        for i in range(1, 10_000):
            tree.delete(b"s.%d" % i)
        for i in range(1, 10_000):
            tree.insert(b"s.%d" % i, i)
    assert tree.memory < held * 1.1
