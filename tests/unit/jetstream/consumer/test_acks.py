"""Reply subjects of delivered messages, and the acknowledgements sent to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnats.jetstream.consumer.acks import read_ack, read_duration, read_nak, read_reply, write_reply

U64 = st.integers(0, 2**64 - 1)
MS, S = 10**6, 10**9


@given(U64, U64, U64, st.integers(0, 2**63 - 1), U64)
def test_what_is_written_is_read(sseq: int, dseq: int, dc: int, ts: int, pending: int) -> None:
    subject = write_reply(b"$JS.ACK.S.C", sseq, dseq, dc, ts, pending)
    assert subject == f"$JS.ACK.S.C.{dc}.{sseq}.{dseq}.{ts}.{pending}".encode()
    assert read_reply(subject) == (sseq, dseq, dc, ts, pending)
    assert read_reply(write_reply(b"$JS.ACK._.hash.S.C", sseq, dseq, dc, ts, pending)) == (
        sseq,
        dseq,
        dc,
        ts,
        pending,
    )


def test_both_versions_and_more_tokens() -> None:
    assert read_reply(b"$JS.ACK.S.C.1.2.3.4.5") == (2, 3, 1, 4, 5)
    assert read_reply(b"$JS.ACK.d.h.S.C.1.2.3.4.5") == (2, 3, 1, 4, 5)
    assert read_reply(b"$JS.ACK.d.h.S.C.1.2.3.4.5.x.y.z") == (2, 3, 1, 4, 5)


@pytest.mark.parametrize(
    "subject",
    [
        b"",
        b"$JS.ACK",
        b"$JS.ACK.S.C.1.2.3.4",
        b"$JS.ACK.d.S.C.1.2.3.4.5",
        b"$JS.FC.S.C.1.2.3.4.5",
        b"x.$JS.ACK.C.1.2.3.4.5",
    ],
)
def test_what_is_no_reply_says_nothing(subject: bytes) -> None:
    assert read_reply(subject) is None


def test_what_is_no_number_is_none_that_exists() -> None:
    none = 2**64 - 1
    assert read_reply(b"$JS.ACK.S.C.1.x..-4.5") == (none, none, 1, -1, 5)


@given(st.binary(max_size=80))
def test_any_subject_is_survived(data: bytes) -> None:
    read_reply(data)
    read_reply(b"$JS.ACK." + data)


@pytest.mark.parametrize(
    ("payload", "kind", "rest"),
    [
        (b"", "ack", b""),
        (b"+ACK", "ack", b""),
        (b"+OK", "ack", b""),
        (b"+ACK ", "nothing", b""),
        (b"+NXT", "next", b""),
        (b"+NXT 10", "next", b" 10"),
        (b"-NAK", "nak", b""),
        (b"-NAK 1s", "nak", b" 1s"),
        (b"+WPI", "progress", b""),
        (b"+WPI!", "nothing", b""),
        (b"+TERM", "term", b""),
        (b"+TERM why", "term", b" why"),
        (b"+TER", "nothing", b""),
        (b"+", "nothing", b""),
    ],
)
def test_payloads(payload: bytes, kind: str, rest: bytes) -> None:
    assert read_ack(payload) == (kind, rest)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("+0", 0),
        ("5s", 5 * S),
        ("1h2m3s4ms5us6ns", 3723 * S + 4 * MS + 5006),
        ("1.5h", 5400 * S),
        (".5s", S // 2),
        ("1.s", S),
        ("-1m", -60 * S),
        ("1µs", 1000),
        ("1μs", 1000),
        ("0.9223372036854775807h", 3320413933267),
        ("9223372036854775807ns", 2**63 - 1),
        ("-9223372036854775808ns", -(2**63)),
        ("0.100000000000000000000h", 360 * S),
        ("", None),
        ("-", None),
        ("1", None),
        ("s", None),
        (".s", None),
        ("1d", None),
        ("1s1", None),
        ("1 s", None),
        ("9223372036854775808ns", None),
        ("3000000h", None),
        ("--1s", None),
        ("1s-1s", None),
    ],
)
def test_durations_as_go_reads_them(text: str, ns: int | None) -> None:
    assert read_duration(text.encode()) == ns


@pytest.mark.parametrize(
    ("rest", "delay"),
    [
        (b"", (None, False)),
        (b"   ", (None, False)),
        (b" 10s ", (10 * S, False)),
        (b' {"delay": 5000000000}', (5 * S, False)),
        (b" {}", (0, False)),
        (b" nonsense", (None, True)),
        (b' {"delay": "5s"}', (None, True)),
        (b" {", (None, True)),
    ],
)
def test_delays(rest: bytes, delay: tuple[int | None, bool]) -> None:
    assert read_nak(rest) == delay


@given(st.binary(max_size=40))
def test_any_payload_is_survived(data: bytes) -> None:
    read_ack(data)
    read_nak(data)
    read_duration(data)
