"""Parsing the reply subjects of fast batches, beside a naive parser."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gnats.jetstream.batch.fastbatch import fast_pattern

Pattern = tuple[bytes, int, int, bool, bool, bool, bool]
WRAP = 1 << 64


def number(text: bytes) -> int:
    """-1 for none; too many digits wrap around, as a 64-bit number with a sign."""
    if not text or not text.isdigit():
        return -1
    value = int(text) % WRAP
    return value - WRAP if value >= WRAP // 2 else value


def naive(reply: bytes) -> Pattern | None:
    tokens = reply.removesuffix(b".$FI").rsplit(b".", 5)
    if len(tokens) < 6:
        return None
    _, batch, flow, gap, seq, op = tokens
    if number(op) not in range(5) or not seq.isdigit() or not 1 <= int(seq) < WRAP - 1:
        return None
    start, append, commit, eob, ping = (number(op) == each for each in range(5))
    first = int(seq) == 1
    if (start and not first) or ((append or eob) and first) or gap not in (b"ok", b"fail"):
        return None
    each = number(flow)
    return batch, int(seq), min(each, 65535) if each > 0 else 10, gap == b"ok", ping, commit or eob, eob


digits = st.integers(0, 1 << 66).map(lambda n: b"%d" % n)
short = st.sampled_from(
    [b"0", b"1", b"2", b"3", b"4", b"5", b"", b"01", b"-1", b"x", b"ok", b"fail", b"OK", b"oks"]
)
anything = st.binary(max_size=6)
token = st.one_of(short, digits, anything)
replies = st.one_of(
    st.lists(token, max_size=9).map(b".".join),
    st.tuples(anything, anything, token, short, st.one_of(digits, short), short).map(b".".join),
    st.binary(max_size=60),
)


@given(replies)
@example(b"inbox.id.10.ok.1.0")
@example(b".id.10.ok.1.0")
@example(b"id.10.ok.1.0")
@example(b"a..10.ok.1.0")
@example(b"a.b.65536.fail.18446744073709551614.1")
@example(b"a.b.18446744073709551617.fail.18446744073709551615.1")
@example(b"a.b.9223372036854775808.fail.2.18446744073709551617")
def test_reply_subjects(start: bytes) -> None:
    reply = start + b".$FI"
    if start:
        assert fast_pattern(reply) == naive(reply)
    else:
        with pytest.raises(ValueError, match="not of a fast batch"):
            fast_pattern(reply)


@given(st.binary(max_size=20))
def test_of_no_fast_batch(reply: bytes) -> None:
    if not reply.endswith(b".$FI"):
        with pytest.raises(ValueError, match="not of a fast batch"):
            fast_pattern(reply)
