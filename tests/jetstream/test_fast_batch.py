"""Fast batches beside the reference: the replies byte for byte, and the stored messages."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from support.streams import Client, GnatsStreams, ReferenceStreams, Streams, message

pytestmark = pytest.mark.timeout(120)

START, APPEND, COMMIT, EOB, PING = range(5)
BEYOND = 2**64

_numbers = itertools.count(1)
Step = tuple[str, bytes, list[str], str]
"""Subject, payload, header lines, and the reply subject behind the inbox; "": none."""
Told = list[tuple[bytes, bytes, bytes]]
"""Reply subject behind the inbox, header, payload."""


def fast(
    seq: object,
    op: object = APPEND,
    *header: str,
    batch: str = "one",
    flow: object = 0,
    gap: str = "fail",
    subject: str = "S.a",
    payload: bytes = b"x",
) -> Step:
    return subject, payload, list(header), f"{batch}.{flow}.{gap}.{seq}.{op}.$FI"


def plain(*header: str, subject: str = "S.a", payload: bytes = b"x") -> Step:
    return subject, payload, list(header), "plain"


def run(
    streams: Streams, steps: list[Step], config: dict[str, Any], name: str
) -> tuple[Told, object, object]:
    """Make a stream and publish steps; return the replies, the stored messages, and the stream's state."""
    streams.add(**eval(repr({"name": name, "subjects": ["S.>"], **config}).replace("S.", f"{name}.")))
    with Client(streams.address) as client:
        told = exchange(client, steps, name)
        stored = []
        for seq in range(1, 16):
            head, payload = client.ask(f"$JS.API.DIRECT.GET.{name}".encode(), b'{"seq":%d}' % seq)[0]
            fields = [line for line in head.split(b"\r\n") if not line.startswith(b"Nats-Time-Stamp")]
            stored.append(([field.replace(name.encode(), b"NAME") for field in fields], payload))
    return told, stored, streams.state(name)


def exchange(client: Client, steps: list[Step], name: str) -> Told:
    """Publish steps in one write, then a message that always has a reply; return the replies up to that."""
    last = b"fence.1.fail.1.2.$FI"
    sent = [
        message(
            subject.replace("S.", f"{name}.").encode(),
            payload,
            [line.replace(" S.", f" {name}.").encode() for line in header],
            client.inbox + reply.encode() if reply else b"",
        )
        for subject, payload, header, reply in steps
    ]
    fence = [b"Nats-Expected-Last-Sequence: 99999999"]
    sent.append(message(b"%s.a" % name.encode(), b"", fence, client.inbox + last))
    client.connection.send(b"".join(sent))
    told: Told = []
    while not told or told[-1][0] != last:
        told.append(parsed(client.connection.read_op(), client.inbox, name))
    return told


def parsed(op: bytes, inbox: bytes, name: str) -> tuple[bytes, bytes, bytes]:
    line, _, rest = op.partition(b"\r\n")
    words = line.split(b" ")
    size = int(words[-2]) if words[0] == b"HMSG" else 0
    subject = words[1].removeprefix(inbox)
    return subject, rest[:size], rest[size:-2].replace(name.encode(), b"NAME")


LONG = [fast(1, START, flow=1000), *(fast(i, flow=1000) for i in range(2, 1203)), fast(1203, COMMIT)]
CASES: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "of one message": ([fast(1, COMMIT), plain()], {}),
    "of some": ([fast(1, START), fast(2), fast(3, subject="S.b"), fast(4, COMMIT)], {}),
    "ended by what is no message": ([fast(1, START), fast(2), fast(3, EOB)], {}),
    "only an end": ([fast(1, EOB), fast(1, COMMIT)], {}),
    "acknowledged each two": ([fast(1, START, flow=2), *(fast(i, flow=2) for i in range(2, 9))], {}),
    "acknowledged each one": ([fast(1, START, flow=1), *(fast(i, flow=1) for i in range(2, 5))], {}),
    "a long one": (LONG, {}),
    "two at once": (
        [
            fast(1, START, flow=4),
            fast(1, START, flow=100, batch="two"),
            *(fast(i, flow=100, batch=b) for i in range(2, 40) for b in ("one", "two")),
            fast(40, COMMIT),
            *(fast(i, flow=100, batch="two") for i in range(40, 90)),
            fast(90, EOB, batch="two"),
        ],
        {},
    ),
    "the first goes slower when there are others": (
        [
            fast(1, START, flow=400),
            *(fast(1, START, batch=f"b{i}") for i in range(7)),
            *(fast(i) for i in range(2, 1500)),
        ],
        {},
    ),
    "operations that are none": (
        [fast(1, op) for op in (5, -1, "x", "", "00", "01", BEYOND, BEYOND + 2, 10**30)],
        {},
    ),
    "sequences that are none": (
        [fast(seq, op) for seq in (0, -1, "x", "", BEYOND - 1, BEYOND, BEYOND + 1) for op in (START, COMMIT)],
        {},
    ),
    "operations that do not go with their sequence": (
        [fast(2, START), fast(1, APPEND), fast(1, EOB), fast(2, COMMIT), fast(2, PING), fast(2, EOB)],
        {},
    ),
    "gaps that are none": ([fast(1, START, gap=gap) for gap in ("", "okay", "OK", "fai")], {}),
    "flows": (
        [
            fast(1, START, flow=flow, batch=f"b{i}")
            for i, flow in enumerate((0, -1, "x", "", 65535, 65536, BEYOND, BEYOND + 3, 3, "03"))
        ],
        {},
    ),
    "too few tokens": (
        [("S.a", b"x", [], reply) for reply in ("$FI", "1.$FI", "1.1.$FI", "ok.1.1.$FI", "3.ok.1.0.$FI")],
        {},
    ),
    "another end": ([("S.a", b"x", [], "one.1.ok.1.0.$fi"), ("S.a", b"x", [], "one.1.ok.1.0.$FI.a")], {}),
    "ids": (
        [
            fast(1, op, batch=batch)
            for batch in ("i" * 65, "i" * 64, 'q"<\\', "", "\x7f", "é")
            for op in (0, 2)
        ],
        {},
    ),
    "unknown": ([fast(2), fast(9, COMMIT), fast(2, PING), fast(7, EOB)], {}),
    "a gap": ([fast(1, START), fast(3), fast(4), fast(5, COMMIT)], {}),
    "a gap that is ok": (
        [
            fast(1, START, gap="ok"),
            fast(3, gap="ok"),
            fast(40, gap="ok"),
            fast(50, COMMIT, gap="ok"),
        ],
        {},
    ),
    "a gap before the end": (
        [fast(1, START, gap="ok"), fast(5, EOB, gap="ok"), fast(1, START), fast(5, EOB)],
        {},
    ),
    "only the first says whether gaps are ok": ([fast(1, START, gap="ok"), fast(3), fast(4, COMMIT)], {}),
    "backwards": (
        [fast(1, START, gap="ok"), fast(5, gap="ok"), fast(3, gap="ok"), fast(6, gap="ok")],
        {},
    ),
    "twice the same": ([fast(1, START), fast(2), fast(2), fast(3)], {}),
    "begun twice": ([fast(1, START), fast(1, START), fast(1, START)], {}),
    "the highest sequence": (
        [fast(1, START, gap="ok", flow=1), fast(BEYOND - 2, gap="ok"), fast(BEYOND - 1, COMMIT, gap="ok")],
        {},
    ),
    "pings": (
        [
            fast(1, START, flow=2, gap="ok"),
            fast(2, gap="ok"),
            fast(2, PING, gap="ok"),
            fast(3, PING, gap="ok"),
            fast(4, gap="ok"),
            fast(100, PING, gap="ok"),
            fast(1, PING, gap="ok"),
            fast(101, EOB, gap="ok"),
        ],
        {},
    ),
    "pings of a batch without gaps": (
        [fast(1, START, flow=2), fast(2), fast(2, PING), fast(5, PING), fast(5, PING)],
        {},
    ),
    "begun by a ping": (
        [fast(1, PING), fast(1, PING, gap="ok", batch="two"), fast(2, COMMIT, gap="ok", batch="two")],
        {},
    ),
    "message ids": (
        [
            plain("Nats-Msg-Id: 1"),
            fast(1, COMMIT, "Nats-Msg-Id: 1"),
            fast(1, COMMIT, "Nats-Msg-Id: 1", gap="ok"),
            fast(1, START, "Nats-Msg-Id: 1", flow=3),
            *(fast(i, APPEND, "Nats-Msg-Id: 1") for i in range(2, 5)),
            fast(5, COMMIT, "Nats-Msg-Id: 1"),
            fast(1, START, "Nats-Msg-Id: 2"),
            fast(2, APPEND, "Nats-Msg-Id: 2"),
            fast(3, EOB),
            fast(1, START, "Nats-Msg-Id: 3", flow=1, gap="ok"),
            fast(2, COMMIT, "Nats-Msg-Id: 3", gap="ok"),
        ],
        {},
    ),
    "a duplicate, then an error": (
        [
            plain("Nats-Msg-Id: 1"),
            fast(1, START, "Nats-Msg-Id: 1", flow=2),
            fast(2, APPEND, "Nats-Expected-Last-Sequence: 100"),
        ],
        {},
    ),
    "expected sequences": (
        [
            fast(1, START, "Nats-Expected-Last-Sequence: 0"),
            fast(2, APPEND, "Nats-Expected-Last-Sequence: 1"),
            fast(3, APPEND, "Nats-Expected-Last-Sequence: 7"),
            fast(4),
            fast(1, START, "Nats-Expected-Last-Sequence: 7", batch="two"),
            fast(2, batch="two"),
            fast(1, START, "Nats-Expected-Last-Sequence: 7", batch="three", gap="ok"),
            fast(2, APPEND, "Nats-Expected-Last-Subject-Sequence: 9", batch="three", gap="ok"),
            fast(3, APPEND, "Nats-Expected-Last-Subject-Sequence: 2", batch="three", gap="ok"),
            fast(4, APPEND, "Nats-Expected-Last-Subject-Sequence-Subject: S.a", batch="three", gap="ok"),
            fast(5, EOB, batch="three", gap="ok"),
        ],
        {},
    ),
    "an error in the last": (
        [
            step
            for i, (gap, seq) in enumerate((("fail", 2), ("ok", 2), ("ok", 4), ("fail", 1), ("ok", 1)))
            for step in (
                *([fast(1, START, gap=gap, batch=f"b{i}")] if seq > 1 else []),
                fast(seq, COMMIT, "Nats-Expected-Last-Sequence: 100", gap=gap, batch=f"b{i}"),
            )
        ],
        {},
    ),
    "an expected message id": (
        [
            fast(1, START, "Nats-Expected-Last-Msg-Id: x"),
            fast(2),
            fast(3, EOB),
            fast(1, START, batch="two", flow=1),
            fast(2, APPEND, "Nats-Expected-Last-Msg-Id: x", batch="two"),
            fast(3, batch="two"),
            fast(4, COMMIT, batch="two"),
            fast(1, START, batch="three"),
            fast(2, APPEND, "Nats-Expected-Last-Msg-Id: x", batch="three"),
            fast(3, EOB, batch="three"),
            fast(4, batch="three"),
            fast(9, PING, batch="three"),
        ],
        {},
    ),
    "levels": (
        [
            fast(1, START, "Nats-Required-Api-Level: 1", "A: b"),
            fast(2, APPEND, "Nats-Required-Api-Level: 100"),
            fast(3, COMMIT),
            fast(1, COMMIT, "Nats-Required-Api-Level: 0"),
            fast(1, COMMIT, "Nats-Required-Api-Level:"),
        ],
        {},
    ),
    "rollups": (
        [
            plain(),
            plain(subject="S.b"),
            fast(1, START),
            fast(2, APPEND, "Nats-Rollup: sub"),
            fast(3, APPEND, "Nats-Rollup: all"),
            fast(4, APPEND, "Nats-Rollup: some"),
        ],
        {"allow_rollup_hdrs": True},
    ),
    "rollups without permission": ([fast(1, START), fast(2, APPEND, "Nats-Rollup: sub")], {}),
    "TTL without permission": (
        [fast(1, COMMIT, "Nats-TTL: 10"), fast(1, START, gap="ok"), fast(2, APPEND, "Nats-TTL: x", gap="ok")],
        {},
    ),
    "TTL": ([fast(1, START, "Nats-TTL: 100"), fast(2, APPEND, "Nats-TTL: x")], {"allow_msg_ttl": True}),
    "schedules": (
        [
            fast(1, START, gap="ok"),
            fast(2, APPEND, "Nats-Schedule: @at 2100-01-01T00:00:00Z", gap="ok"),
            fast(3, APPEND, "Nats-Scheduler: x", gap="ok"),
        ],
        {},
    ),
    "another stream": ([fast(1, COMMIT, "Nats-Expected-Stream: x"), fast(1, START)], {}),
    "a source's header": ([fast(1, COMMIT, "Nats-Stream-Source: x")], {}),
    "too many messages": (
        [fast(1, START, gap="ok"), *(fast(i, gap="ok") for i in range(2, 5)), fast(5, COMMIT, gap="ok")],
        {"max_msgs": 2, "discard": "new"},
    ),
    "too many bytes": (
        [fast(1, START, payload=b"x" * 200), fast(2, payload=b"x" * 300), fast(3, COMMIT)],
        {"max_bytes": 400, "discard": "new"},
    ),
    "too many of a subject": (
        [
            fast(1, START, gap="ok"),
            fast(2, gap="ok"),
            fast(3, subject="S.b", gap="ok"),
            fast(4, EOB, gap="ok"),
        ],
        {"max_msgs_per_subject": 1, "discard": "new", "discard_new_per_subject": True},
    ),
    "the oldest go": ([fast(1, START), *(fast(i) for i in range(2, 9)), fast(9, COMMIT)], {"max_msgs": 3}),
    "a large message": (
        [fast(1, START), fast(2, payload=b"x" * 200), fast(2), fast(3, COMMIT)],
        {"max_msg_size": 150},
    ),
    "counters": (
        [
            fast(1, START, "Nats-Incr: 5", payload=b""),
            fast(2, APPEND, "Nats-Incr: 6", payload=b""),
            fast(3, COMMIT, "Nats-Incr: -1", payload=b""),
            fast(1, START, gap="ok"),
            fast(2, APPEND, "Nats-Incr: x", gap="ok"),
            plain("Nats-Incr: 1", payload=b""),
        ],
        {"allow_msg_counter": True},
    ),
    "increments without counters": ([fast(1, COMMIT, "Nats-Incr: 5", payload=b"")], {}),
    "transformed": (
        [fast(1, START), fast(2, COMMIT, "Nats-Expected-Last-Subject-Sequence: 1", subject="S.c")],
        {"subject_transform": {"src": "S.a", "dest": "S.c"}},
    ),
    "no acknowledgements": (
        [
            fast(1, START, flow=2),
            fast(2),
            fast(3, APPEND, "Nats-Expected-Last-Sequence: 100"),
            fast(2),
            fast(1, COMMIT),
            fast(1, COMMIT, "Nats-Expected-Last-Msg-Id: x"),
            fast(1, START, gap="ok", batch="two"),
            fast(5, gap="ok", batch="two"),
            fast(6, EOB, gap="ok", batch="two"),
            fast(1, "x"),
        ],
        {"no_ack": True},
    ),
    "nobody is interested": (
        [fast(1, START, flow=2), fast(2), fast(3), fast(4, COMMIT)],
        {"retention": "interest"},
    ),
    "disabled": ([fast(1, START), fast(1, "x"), plain()], {"allow_batched": False}),
    "a stream of atomic batches": ([fast(1, START)], {"allow_batched": False, "allow_atomic": True}),
    "with the header of an atomic batch": (
        [
            fast(1, START, "Nats-Batch-Id: a", "Nats-Batch-Sequence: 1"),
            plain("Nats-Batch-Id: a", "Nats-Batch-Sequence: 1"),
            fast(2, COMMIT),
            plain("Nats-Batch-Id: a", "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1"),
        ],
        {"allow_atomic": True},
    ),
    "beside plain messages": ([fast(1, START), plain(), fast(2), plain(), fast(3, COMMIT), plain()], {}),
    "without flow to its own reply": ([fast(1, START), ("S.a", b"x", [], ""), fast(2, COMMIT)], {}),
}


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(("steps", "config"), CASES.values(), ids=CASES.keys())
def test_fast_batches(
    tested: GnatsStreams,
    compared: ReferenceStreams,
    steps: list[Step],
    config: dict[str, Any],
    storage: str,
) -> None:
    config = {"storage": storage, "allow_batched": True, "allow_direct": True} | config
    name = f"F{next(_numbers)}"
    assert run(tested, steps, config, name) == run(compared, steps, config, name)


HEADERS = [
    ["Nats-Msg-Id: 1"],
    ["Nats-Msg-Id: 2"],
    ["Nats-Expected-Last-Sequence: 3"],
    ["Nats-Expected-Last-Msg-Id: 1"],
    ["Nats-Expected-Last-Subject-Sequence: 0"],
    ["Nats-Rollup: sub"],
    ["Nats-TTL: 1h"],
    ["Nats-Required-Api-Level: 2"],
    ["Nats-Required-Api-Level: 99"],
    ["Nats-Expected-Stream: other"],
]


def program(chance: random.Random) -> list[Step]:
    """Make random steps of several publishers; most of their messages are in order."""
    batches: dict[str, int] = {}
    flows = {batch: chance.choice((0, 1, 2, 7, 500)) for batch in "abcd"}
    steps = []
    for _ in range(chance.choice((20, 80, 300))):
        batch = chance.choice("abcd")
        seq = batches.get(batch, 0) + 1
        if chance.random() < 0.06:
            seq = max(1, seq + chance.choice((-1, 1, 1, 5, 20)))
        ops = [COMMIT] if seq > 1 else [START] * 6 + [COMMIT, PING]
        op = chance.choice([APPEND] * 30 + [COMMIT, EOB, PING, PING]) if seq > 1 else chance.choice(ops)
        if op == PING:
            seq = max(1, seq - chance.choice((0, 1, 1, 1)))
        batches[batch] = 0 if op in (COMMIT, EOB) else max(seq, batches.get(batch, 0))
        header = chance.choice(HEADERS) if chance.random() < 0.12 else []
        gap = ("ok" if batch in "ab" else "fail") if chance.random() < 0.95 else chance.choice(("ok", "fail"))
        subject = chance.choice(("S.a", "S.b"))
        steps.append(fast(seq, op, *header, batch=batch, flow=flows[batch], gap=gap, subject=subject))
        if chance.random() < 0.03:
            steps.append(plain())
    return steps


@pytest.mark.parametrize("seed", range(40))
def test_what_any_publishers_may_do(tested: GnatsStreams, compared: ReferenceStreams, seed: int) -> None:
    chance = random.Random(seed)
    steps = program(chance)
    config: dict[str, Any] = {
        "storage": chance.choice(("file", "memory")),
        "allow_batched": True,
        "allow_direct": True,
        "no_ack": chance.random() < 0.2,
        "allow_rollup_hdrs": chance.random() < 0.7,
        "allow_msg_ttl": chance.random() < 0.7,
        **chance.choice(({}, {}, {"max_msgs": 7, "discard": "new"}, {"max_msgs_per_subject": 2})),
    }
    name = f"R{next(_numbers)}"
    assert run(tested, steps, config, name) == run(compared, steps, config, name)


def test_too_many_batches(tested: GnatsStreams, compared: ReferenceStreams) -> None:
    steps = [fast(1, START, batch=f"b{i}") for i in range(1002)]
    steps += [fast(2, COMMIT, batch="b7"), fast(1, START, batch="c"), fast(1, START, batch="d")]
    name = f"M{next(_numbers)}"
    config = {"storage": "memory", "allow_batched": True, "allow_direct": True}
    assert run(tested, steps, config, name) == run(compared, steps, config, name)
