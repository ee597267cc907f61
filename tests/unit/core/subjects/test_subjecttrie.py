"""Comparisons of many subjects at once, beside a comparison of each pair."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnats.core.subjects.subject import collide, subset_match
from gnats.core.subjects.subjecttrie import Stopped, SubjectTrie

pytestmark = pytest.mark.timeout(60)

TOKENS = st.lists(st.sampled_from(["a", "b", "cc", "*"]), min_size=1, max_size=4)
SUBJECTS = st.builds(lambda tokens, tail: ".".join(tokens + tail), TOKENS, st.sampled_from([[], [], [">"]]))
SETS = st.lists(st.one_of(SUBJECTS, st.just(">")), max_size=8)


@settings(max_examples=500)
@given(SETS, SETS)
def test_two_sets(some: list[str], others: list[str]) -> None:
    expected = any(collide(a, b) for a in some for b in others)
    assert SubjectTrie(some).collides_with(SubjectTrie(others)) == expected


@settings(max_examples=500)
@given(SETS)
def test_one_set(subjects: list[str]) -> None:
    pairs = [(i, j) for i, j in itertools.combinations(range(len(subjects)), 2)]
    colliding = [(i, j) for i, j in pairs if collide(subjects[i], subjects[j])]
    assert SubjectTrie(subjects).has_collision() == bool(colliding)
    assert SubjectTrie(subjects).first_collision(subjects) == (colliding[0] if colliding else None)
    contained = any(subset_match(a, b) for a, b in itertools.permutations(subjects, 2))
    assert SubjectTrie(subjects).has_subset() == contained


@settings(max_examples=300)
@given(SETS, SETS, st.data())
def test_what_was_taken_away_is_not_there(some: list[str], others: list[str], data: st.DataObject) -> None:
    trie = SubjectTrie(some + others)
    assert len(trie) == len(some) + len(others)
    gone = data.draw(st.permutations(some))
    trie.discard(gone)
    trie.discard(["never.there", "never.>", *(f"{each}.more" for each in others if ">" not in each)])
    assert len(trie) == len(others)
    for subject in some:
        assert trie.collides_with(SubjectTrie([subject])) == any(collide(subject, each) for each in others)
    trie.discard(others)
    assert not trie.collides_with(SubjectTrie([">"]))


def test_a_subject_of_very_many_tokens() -> None:
    subject = "a." * 100_000 + "*"
    trie = SubjectTrie([subject])
    assert trie.collides_with(SubjectTrie([subject]))
    assert not trie.collides_with(SubjectTrie([subject + ".b"]))
    trie.discard([subject])
    assert len(trie) == 0


def pairs_of_long(n: int) -> SubjectTrie:
    """Make a trie whose subjects overlap in pairs, apart from their last tokens."""
    return SubjectTrie([f"a{i}.*.x" for i in range(n)] + [f"*.b{i}.y" for i in range(n)])


def test_comparing_can_be_stopped() -> None:
    trie = pairs_of_long(200)
    assert not trie.has_collision()
    trie.stop()
    with pytest.raises(Stopped):
        trie.has_collision()
