"""Publishing to a stream beside the reference server: acknowledgements and stored messages."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.streams import Client, GnatsStreams, ReferenceStreams, Streams

pytestmark = pytest.mark.timeout(120)

Message = tuple[bytes, bytes, list[bytes]]  # subject, payload, header lines
_numbers = itertools.count(1)


def msg(subject: str, payload: bytes = b"x", *header: str) -> Message:
    return subject.encode(), payload, [line.encode() for line in header]


@dataclass
class Case:
    """Messages published to one stream; S in subjects stands for a unique name."""

    messages: list[Message]
    config: dict[str, Any] = field(default_factory=dict)


EXPECTED = "Nats-Expected-"
CASES = {
    "stored": Case([msg("S.a"), msg("S.b", b""), msg("S.c", b"\0\xff" * 500)]),
    "headers are stored": Case([msg("S.a", b"x", "A: b"), msg("S.a", b"", "A:b", "C:  d")]),
    "expected stream": Case(
        [msg("S.a", b"x", EXPECTED + "Stream: other"), msg("S.a", b"x", EXPECTED + "Stream: NAME")]
    ),
    "expected last sequence": Case(
        [
            msg("S.a", b"x", EXPECTED + "Last-Sequence: 0"),
            msg("S.a", b"x", EXPECTED + "Last-Sequence: 0"),
            msg("S.a", b"x", EXPECTED + "Last-Sequence: 1"),
            msg("S.a", b"x", EXPECTED + "Last-Sequence: x"),
            msg("S.a", b"x", EXPECTED + "Last-Sequence: -2"),
            msg("S.a", b"x", EXPECTED + "Last-Sequence:"),
            msg("S.a", b"x", EXPECTED + "Last-Sequence: 18446744073709551619"),
        ]
    ),
    "expected last sequence of the subject": Case(
        [
            msg("S.a"),
            msg("S.b"),
            msg("S.a", b"x", EXPECTED + "Last-Subject-Sequence: 1"),
            msg("S.a", b"x", EXPECTED + "Last-Subject-Sequence: 1"),
            msg("S.c", b"x", EXPECTED + "Last-Subject-Sequence: 0"),
            msg("S.d", b"x", EXPECTED + "Last-Subject-Sequence: 7"),
            msg(
                "S.e",
                b"x",
                EXPECTED + "Last-Subject-Sequence: 2",
                EXPECTED + "Last-Subject-Sequence-Subject: S.b",
            ),
            msg("S.e", b"x", EXPECTED + "Last-Subject-Sequence-Subject: S.b"),
            msg("S.e", b"x", EXPECTED + "Last-Subject-Sequence: no"),
        ]
    ),
    "expected last sequence of subjects with wildcards": Case(
        [
            *(msg(f"S.{subject}") for subject in ("1.a", "1.b", "2.a", "3.b", "1.c", "1.b", "2.c")),
            *(
                msg(
                    f"S.{subject}",
                    b"x",
                    EXPECTED + f"Last-Subject-Sequence: {seq}",
                    EXPECTED + f"Last-Subject-Sequence-Subject: {of}",
                )
                for subject, of, seq in [
                    ("1.a", "S.1.*", 0),
                    ("1.b", "S.1.*", 5),
                    ("1.b", "S.1.*", 6),
                    ("1.x", "S.1.*", 7),
                    ("1.x", "S.1.*", 8),
                    ("2.x", "S.*.c", 9),
                    ("2.x", "S.*.c", 7),
                    ("4.x", "S.4.>", 0),
                    ("4.x", "S.>", 7),
                    ("4.x", "S.>", 11),
                    ("4.x", ">", 11),
                    ("4.x", ">", 12),
                    ("5.x", "none.*", 0),
                    ("5.x", "none.*", 14),
                ]
            ),
        ],
        {"max_msgs_per_subject": 1},
    ),
    "message ids": Case(
        [
            msg("S.a", b"x", "Nats-Msg-Id: one"),
            msg("S.b", b"y", "Nats-Msg-Id: one"),
            msg("S.a", b"x", "Nats-Msg-Id: two"),
            msg("S.a", b"x", "Nats-Msg-Id: one"),
            msg("S.a", b"x", "Nats-Msg-Id:"),
            msg("S.a", b"x", "Nats-Msg-Id:"),
            msg("S.a", b"x", EXPECTED + "Last-Msg-Id: two"),
            msg("S.a", b"x", 'Nats-Msg-Id: <three> & "\x7f"'),
            msg("S.a", b"x", EXPECTED + "Last-Msg-Id: two"),
            msg("S.a", b"x", EXPECTED + 'Last-Msg-Id: <three> & "\x7f"'),
            msg("S.a", b"x", EXPECTED + "Last-Msg-Id: three"),
        ]
    ),
    "a name of a header counts as it is written": Case(
        [
            msg("S.a", b"x", "nats-msg-id: one"),
            msg("S.a", b"x", "nats-msg-id: one"),
            msg("S.a", b"x", "Nats-Msg-Id : one"),
        ]
    ),
    "the first of two headers counts": Case(
        [msg("S.a", b"x", "Nats-Msg-Id: one", "Nats-Msg-Id: two"), msg("S.a", b"x", "Nats-Msg-Id: two")]
    ),
    "rollup without permission": Case([msg("S.a", b"x", "Nats-Rollup: sub")]),
    "rollup with purges denied": Case([msg("S.a", b"x", "Nats-Rollup: sub")], {"deny_purge": True}),
    "rollup": Case(
        [
            msg("S.a"),
            msg("S.b"),
            msg("S.a"),
            msg("S.a", b"x", "Nats-Rollup: SUB"),
            msg("S.a", b"x", "Nats-Rollup: aLL"),
            msg("S.a", b"x", 'Nats-Rollup: Other "one"'),
        ],
        {"allow_rollup_hdrs": True},
    ),
    "largest message": Case(
        [msg("S.a", b"x" * 10), msg("S.a", b"x" * 11), msg("S.a", b"", "A: b"), msg("S.a", b"")],
        {"max_msg_size": 10},
    ),
    "header too large": Case([msg("S.a", b"x", "A: " + "b" * 65515), msg("S.a", b"x", "A: " + "b" * 65525)]),
    "discard new": Case([msg("S.a"), msg("S.a"), msg("S.a")], {"max_msgs": 2, "discard": "new"}),
    "discard new bytes": Case(
        [msg("S.a", b"x" * 100), msg("S.a", b"x" * 100), msg("S.a", b"x" * 300)],
        {"max_bytes": 250, "discard": "new"},
    ),
    "discard new of each subject": Case(
        [msg("S.a"), msg("S.a"), msg("S.b")],
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True, "max_msgs": 10},
    ),
    "discard old": Case([msg("S.a"), msg("S.b"), msg("S.c")], {"max_msgs": 2}),
    "of each subject": Case([msg("S.a"), msg("S.b"), msg("S.a"), msg("S.a")], {"max_msgs_per_subject": 1}),
    "TTL without permission": Case(
        [
            msg("S.a", b"x", "Nats-TTL: 10"),
            msg("S.a", b"x", "Nats-TTL: never"),
            msg("S.a", b"x", "Nats-TTL: 0"),
            msg("S.a", b"x", "Nats-TTL: x"),
            msg("S.a", b"x", "Nats-TTL:"),
        ]
    ),
    "TTL": Case(
        [
            msg("S.a", b"x", "Nats-TTL: " + ttl)
            for ttl in (
                "10",
                "10s",
                "1h30m",
                "0",
                "0s",
                "500ms",
                "never",
                "NeVer",
                "-1",
                "-5s",
                "1.5s",
                "x",
                "",
                "1d",
                "+3s",
            )
        ],
        {"allow_msg_ttl": True},
    ),
    "no increments": Case(
        [
            msg("S.a", b"", "Nats-Incr: 1"),
            msg("S.a", b"", "Nats-Incr: x"),
            msg("S.a", b"x", "Nats-Incr: 1"),
            msg("S.a", b"", "Nats-Incr:"),
        ]
    ),
    "no schedules": Case(
        [
            msg("S.a", b"x", "Nats-Schedule: @at 2030-01-01T00:00:00Z", "Nats-Schedule-Target: S.b"),
            msg("S.a", b"x", "Nats-Schedule: nonsense"),
            msg("S.a", b"x", "Nats-Schedule:"),
            msg("S.a", b"x", "Nats-Schedule-Next: purge"),
            msg("S.a", b"x", "Nats-Schedule-Next: later"),
            msg("S.a", b"x", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.a"),
            msg("S.a", b"x", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.b"),
            msg("S.a", b"x", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.*"),
            msg("S.a", b"x", "Nats-Scheduler: S.b"),
        ]
    ),
    "no sources": Case(
        [msg("S.a", b"x", "Nats-Stream-Source: other 1"), msg("S.a", b"x", "Nats-Stream-Source:")]
    ),
    "no batches": Case(
        [
            msg("S.a", b"x", "Nats-Batch-Id: one", "Nats-Batch-Sequence: 1"),
            msg("S.a", b"x", "Nats-Batch-Id:"),
            msg("S.a", b"x", "Nats-Batch-Id: one", "Nats-Batch-Sequence: 1", "Nats-Expected-Stream: other"),
        ]
    ),
    "transformed": Case(
        [
            msg("S.a.b"),
            msg("S.c"),
            msg("S.a.c", b"x", EXPECTED + "Last-Subject-Sequence: 0"),
            msg("S.a.c", b"x", EXPECTED + "Last-Subject-Sequence: 3"),
        ],
        {"subject_transform": {"src": "S.a.*", "dest": "S.changed.$1"}},
    ),
    "nobody is interested": Case(
        [msg("S.a"), msg("S.b", b"x", "Nats-Msg-Id: one"), msg("S.b", b"x", "Nats-Msg-Id: one")],
        {"retention": "interest"},
    ),
    "counters": Case(
        [
            msg(subject, payload, *header)
            for subject, payload, header in (
                ("S.a", b"", ["Nats-Incr: 1"]),
                ("S.a", b"", ["Nats-Incr: +41"]),
                ("S.a", b"", ["Nats-Incr: -100"]),
                ("S.a", b"", ["Nats-Incr: 58"]),
                ("S.b", b"", ["Nats-Incr: 0"]),
                ("S.b", b"", ["Nats-Incr: -0"]),
                ("S.b", b"", ["Nats-Incr: 000123456789012345678901234567890"]),
                ("S.b", b"", ["Nats-Incr: -123456789012345678901234567891"]),
                ("S.b", b"", ["Nats-Incr: 99999999999999999999"]),
                ("S.b", b"x", ["Nats-Incr: 1"]),
                ("S.b", b"x", []),
                ("S.b", b"", ["A: b"]),
                ("S.b", b"", ["Nats-Incr: x"]),
                ("S.b", b"", ["Nats-Incr: "]),
                ("S.b", b"", ["Nats-Incr: +"]),
                ("S.b", b"", ["Nats-Incr: 1", "Nats-Rollup: sub"]),
                ("S.b", b"", ["Nats-Incr: 1", "Nats-Expected-Last-Sequence: 9"]),
                ("S.b", b"", ["Nats-Incr: 1", "Nats-Msg-Id: one"]),
                ("S.b", b"", ["Nats-Incr: 1", "Nats-Msg-Id: one"]),
            )
        ],
        {"allow_msg_counter": True},
    ),
}


def told(streams: Streams, case: Case, name: str) -> tuple[list[bytes], tuple[int, int, int]]:
    """Publish a case's messages to a new stream; return the replies in order, and the state at the end."""
    config = {"subjects": ["S.>"], **case.config}
    text = repr(config).replace("S.", f"{name}.")
    streams.add(name=name, **eval(text))  # only literals of this file
    with Client(streams.address) as client:
        replies = [
            client.ask(
                subject.replace(b"S.", name.encode() + b"."),
                payload,
                [
                    line.replace(b"NAME", name.encode()).replace(b" S.", b" " + name.encode() + b".")
                    for line in header
                ],
            )[0][1]
            for subject, payload, header in case.messages
        ]
    return [reply.replace(name.encode(), b"NAME") for reply in replies], streams.state(name)


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_replies(tested: GnatsStreams, compared: ReferenceStreams, case: Case, storage: str) -> None:
    case = Case(case.messages, case.config | {"storage": storage})
    name = f"T{next(_numbers)}"
    assert told(tested, case, name) == told(compared, case, name)
