"""Subjects: validity, wildcards, and which subjects cover or overlap each other."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.core.subjects.subject import (
    collide,
    has_wildcard,
    literal_match,
    subset_match,
    token_count,
    valid_literal_subject,
    valid_publish_subject,
    valid_subject,
)

pytestmark = pytest.mark.timeout(60)

LITERALS = ["foo", "foo.bar", "foo*", "*bar", "a.foo*bar.c", "foo.**", ">>", "foo.>bar", "foo>.bar", "a.\xff"]
PATTERNS = ["*", ">", "foo.*", "*.bar", "foo.>", "foo.*.*", "*.>", "foo.*.bar.>"]
EMPTY_TOKENS = ["", ".", ".foo", "foo.", "foo..bar", "foo...bar", "..", "*..>", ">."]
AFTER_FULL_WILDCARD = [">.bar", "foo.>.bar", ">.>", "a.>.*"]
WITH_SPACE = ["foo bar", " ", "foo. .bar", "foo.\tbar", "foo.bar\n", "\r.foo", "foo.b\fr"]


@pytest.mark.parametrize("subject", LITERALS)
def test_a_literal_subject_is_valid_everywhere(subject: str) -> None:
    assert valid_subject(subject)
    assert valid_literal_subject(subject)
    assert valid_publish_subject(subject)
    assert not has_wildcard(subject)


@pytest.mark.parametrize("subject", PATTERNS)
def test_a_pattern_can_be_subscribed_to_only(subject: str) -> None:
    assert valid_subject(subject)
    assert not valid_literal_subject(subject)
    assert not valid_publish_subject(subject)
    assert has_wildcard(subject)


@pytest.mark.parametrize("subject", EMPTY_TOKENS)
def test_an_empty_token_is_never_valid(subject: str) -> None:
    assert not valid_subject(subject)
    assert not valid_literal_subject(subject)
    assert not valid_publish_subject(subject)


@pytest.mark.parametrize("subject", AFTER_FULL_WILDCARD)
def test_nothing_follows_the_full_wildcard(subject: str) -> None:
    assert not valid_subject(subject)


@pytest.mark.parametrize("subject", WITH_SPACE)
def test_white_space_makes_a_subject_invalid_but_still_literal(subject: str) -> None:
    assert not valid_subject(subject)
    assert not valid_publish_subject(subject)
    assert valid_literal_subject(subject)


def test_tokens_are_counted_with_the_empty_ones() -> None:
    assert [token_count(s) for s in ("", "foo", "foo.bar", "foo.", ".", "a.*.c.>")] == [0, 1, 2, 2, 2, 4]


def test_bytes_and_str_are_the_same_subject() -> None:
    assert has_wildcard(b"foo.*")
    assert has_wildcard("foo.*")
    assert subset_match(b"f\xc3\xbc.x", "fü.*")


def test_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes or str, not int"):
        valid_subject(1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("subject", "test", "covered"),
    [
        ("foo.bar", "foo.bar", True),
        ("foo.bar", "foo.*", True),
        ("foo.*", "foo.*", True),
        ("foo.*", ">", True),
        ("foo.*", "*.*", True),
        ("foo.*", "foo.bar", False),
        ("foo.>", "foo.>", True),
        ("foo.>", "foo.*", False),
        ("foo.bar.>", "foo.>", True),
        ("foo", "foo.>", False),
        ("foo.bar", "foo", False),
        ("foo.bar", "foo.bar.*", False),
        (">", "*.>", False),
        ("*.>", ">", True),
        ("foo.bar", "foo.*x", False),
    ],
)
def test_a_subject_is_covered_by_a_wider_one(subject: str, test: str, covered: bool) -> None:
    assert subset_match(subject, test) is covered


@pytest.mark.parametrize(
    ("a", "b", "meet"),
    [
        ("foo.*", "foo.*.bar.>", False),
        ("foo.*", "foo.foo", True),
        ("foo.*", "*.foo", True),
        ("foo.bar.>", "*.bar.foo", True),
        ("foo.>", "foo", False),
        ("foo.>", ">", True),
        ("foo.*.baz", "*.bar.>", True),
        ("foo.bar", "foo.baz", False),
        ("foo.*.a", "foo.*.b", False),
        ("foo.*x", "*.bar", False),
    ],
)
def test_subjects_collide_both_ways_round(a: str, b: str, meet: bool) -> None:
    assert collide(a, b) is meet
    assert collide(b, a) is meet


@pytest.mark.parametrize(
    ("literal", "subject", "matched"),
    [
        ("foo", "*", True),
        ("foo.bar", ">", True),
        ("stats.test.22", "stats.*.*", True),
        ("stats.test.foos", "stats.test.foo", False),
        ("stats.test", "stats.test.*", False),
        ("foo.***.bar", "foo.***.bar", True),
        ("foo.*", "foo.*", True),
        (">", "*", True),
        ("*", "foo", False),
        ("foo..bar", "foo.*.bar", False),
    ],
)
def test_wildcards_of_a_published_subject_are_ordinary_characters(
    literal: str, subject: str, matched: bool
) -> None:
    assert literal_match(literal, subject) is matched


def matches(pattern: list[str], literal: tuple[str, ...]) -> bool:
    if pattern[-1] == ">":
        return len(literal) >= len(pattern) and matches_tokens(pattern[:-1], literal)
    return len(literal) == len(pattern) and matches_tokens(pattern, literal)


def matches_tokens(pattern: list[str], literal: tuple[str, ...]) -> bool:
    return all(p in ("*", t) for p, t in zip(pattern, literal, strict=False))


# No pattern has the token z: it stands for every token that only a wildcard matches.
UNIVERSE = [literal for n in range(1, 6) for literal in product("abz", repeat=n)]
patterns = st.builds(
    lambda tokens, tail: [*tokens, ">"] if tail or not tokens else tokens,
    st.lists(st.sampled_from("ab*"), max_size=4),
    st.booleans(),
).filter(lambda tokens: len(tokens) <= 4)


@given(patterns, patterns)
def test_covering_and_colliding_agree_with_the_subjects_matched(a: list[str], b: list[str]) -> None:
    by_a = {literal for literal in UNIVERSE if matches(a, literal)}
    by_b = {literal for literal in UNIVERSE if matches(b, literal)}
    assert subset_match(".".join(a), ".".join(b)) is (by_a <= by_b)
    assert collide(".".join(a), ".".join(b)) is bool(by_a & by_b)


@given(patterns, st.sampled_from(UNIVERSE))
def test_a_literal_is_covered_exactly_by_what_matches_it(
    pattern: list[str], literal: tuple[str, ...]
) -> None:
    subject, test = ".".join(literal), ".".join(pattern)
    assert subset_match(subject, test) is literal_match(subject, test) is matches(pattern, literal)


@given(st.text(alphabet="a.*> \t", max_size=8))
def test_validity_follows_from_the_tokens(subject: str) -> None:
    tokens = subject.split(".")
    whole = all(tokens)
    wild = "*" in tokens or ">" in tokens
    assert has_wildcard(subject) is wild
    assert valid_literal_subject(subject) is (whole and not wild)
    spaced = " " in subject or "\t" in subject
    assert valid_subject(subject) is (whole and not spaced and ">" not in tokens[:-1])


def test_subjects_of_many_tokens_need_no_stack() -> None:
    tokens = ["t"] * 100_000
    subject = ".".join(tokens)
    assert valid_subject(subject)
    assert subset_match(subject, ".".join(["*"] * 100_000))
    assert not subset_match(subject, ".".join(["*"] * 100_001))
    assert collide(".".join([*tokens[:-1], ">"]), subject)
