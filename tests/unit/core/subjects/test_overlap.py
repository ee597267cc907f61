"""The subjects that a subscription and an import have in common, beside a naive model."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.core.subjects.overlap import overlap
from gnats.core.subjects.subject import literal_match

pytestmark = pytest.mark.timeout(60)

TOKENS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4)
LITERALS = [".".join(t) for n in range(1, 6) for t in itertools.product("ab", repeat=n)]


@pytest.mark.parametrize(
    ("subject", "to", "common"),
    [
        ("a", "a", "a"),
        ("a", "b", None),
        ("a.b", "a.>", "a.b"),
        ("a.*", "a.>", "a.*"),
        (">", "a.>", "a.>"),
        ("*.b", "a.*", "a.b"),
        ("*.*.c", "a.>", "a.*.c"),
        ("*.>", "a.b.*", "a.b.*"),
        ("*.b.>", "a.*.*.d", "a.b.*.d"),
        ("a.b", "a.b.c", None),
    ],
)
def test_cases(subject: str, to: str, common: str | None) -> None:
    assert overlap(subject.encode(), to.encode()) == (common.encode() if common else None)


@given(TOKENS, TOKENS, st.booleans())
def test_what_is_common_is_heard_by_both(a: list[str], b: list[str], full: bool) -> None:
    subject, to = ".".join(a), ".".join([*b, ">"] if full else b)
    common = overlap(subject.encode(), to.encode())
    both = [s for s in LITERALS if literal_match(s, subject) and literal_match(s, to)]
    if common is None:
        # nats-server finds no overlap that takes tokens from both sides in turn.
        assert not both or full
    else:
        assert [s for s in LITERALS if literal_match(s, common)] == both
