"""Message schedules beside the reference: checks, patterns, and the messages that they make."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.servers import Kind, selected
from support.streams import Client, GnatsStreams, ReferenceStreams, Streams, message

from .conftest import serve

pytestmark = pytest.mark.timeout(120)

_numbers = itertools.count(1)
Message = tuple[str, bytes, list[str]]
"""Subject, payload, header lines; S in them is the name of the stream."""
Stored = list[tuple[list[bytes], bytes]]

ALLOWED = {"allow_msg_schedules": True, "allow_msg_ttl": True}
LATER = "Nats-Schedule: @at 2100-01-01T00:00:00Z"
TARGET = "Nats-Schedule-Target: S.t"
PAST = "Nats-Schedule: @at 1970-01-01T00:00:00Z"
TIMES = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?")


def msg(subject: str, *header: str, payload: bytes = b"x") -> Message:
    return subject, payload, list(header)


def part(seq: int, subject: str, *header: str, commit: bool = False) -> Message:
    """Make a message of an atomic batch."""
    lines = ["Nats-Batch-Id: one", f"Nats-Batch-Sequence: {seq}", *["Nats-Batch-Commit: 1"] * commit]
    return subject, b"x", [*lines, *header]


def named(text: str, name: str) -> bytes:
    return re.sub(r"\bS(?=\.|\b)", name, text).encode()


def add(streams: Streams, config: dict[str, Any]) -> str:
    name = f"M{next(_numbers)}"
    config = {"subjects": ["S.>"], "allow_direct": True, **config}
    streams.add(name=name, **eval(named(repr(config), name)))  # only literals of this file
    return name


def publish(client: Client, messages: list[Message], name: str) -> list[bytes]:
    """Publish messages one after the other; return the replies."""
    return [
        client.ask(named(subject, name), payload, [named(line, name) for line in header])[0][1]
        for subject, payload, header in messages
    ]


def stored(client: Client, name: str, last: int) -> Stored:
    found = []
    for seq in range(1, last + 1):
        head, payload = client.ask(b"$JS.API.DIRECT.GET.%s" % name.encode(), b'{"seq":%d}' % seq)[0]
        lines = TIMES.sub(b"TIME", head.replace(name.encode(), b"NAME")).split(b"\r\n")
        found.append((lines, payload))
    return found


# -- checks --------------------------------------------------------------------------------------------------

CHECKS: dict[str, tuple[list[Message], dict[str, Any]]] = {
    "taken": (
        [
            msg("S.a", LATER, TARGET),
            msg("S.a", LATER, TARGET, "Nats-Rollup: SUB"),
            msg("S.b", LATER, TARGET, "Nats-Rollup:"),
            msg("S.b", LATER, TARGET, "Nats-Schedule-TTL: 5m", "Nats-Schedule-Rollup: sub"),
            msg("S.c", "Nats-Schedule: 0 0 5 * * *", TARGET, "Nats-Schedule-Time-Zone: Europe/Amsterdam"),
            msg("S.d", "Nats-Schedule:"),
            msg("S.e", "Nats-Schedule: @at 0001-01-01T00:00:00Z"),
            msg("S.f", "Nats-Schedule-Time-Zone: UTC"),
            msg("S.g", "Nats-Schedule-Target: no way"),
        ],
        {},
    ),
    "patterns": (
        [
            msg("S.a", "Nats-Schedule: x", TARGET),
            msg("S.a", "Nats-Schedule: x"),
            msg("S.a", "Nats-Schedule: @at 2024-02-30T00:00:00Z", TARGET),
            msg("S.a", "Nats-Schedule: @every 999ms", TARGET),
            msg("S.a", "Nats-Schedule: 0 0 5 * * *", TARGET, "Nats-Schedule-Time-Zone: No/Where"),
            msg("S.a", "Nats-Schedule: x", TARGET, "Nats-Schedule-Time-Zone: No/Where"),
            msg("S.a", "Nats-Schedule: x", TARGET, "Nats-Schedule-Time-Zone: UTC"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Time-Zone: UTC"),
            msg("S.a", "Nats-Schedule: @every 5s", TARGET, "Nats-Schedule-Time-Zone: UTC"),
            msg("S.a", "Nats-Schedule-Time-Zone:"),
            msg("S.a", "Nats-Schedule-Time-Zone: +02:00"),
            msg("S.a", "Nats-Schedule-Time-Zone: ../zoneinfo/UTC"),
            msg("S.a", "Nats-Schedule-Time-Zone: /etc/localtime"),
        ],
        {},
    ),
    "TTLs and rollups": (
        [
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL: x"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL: 1ms"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL: 0"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL: never"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Rollup: all"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Rollup: SUB"),
            msg("S.a", LATER, TARGET, "Nats-Rollup: all"),
            msg("S.a", LATER, TARGET, "Nats-Rollup: x"),
            msg("S.a", LATER, "Nats-Schedule-TTL: x", "Nats-Schedule-Rollup: all"),
        ],
        {},
    ),
    "TTLs that are not allowed": (
        [
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL: 5m"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL: x"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL: 0"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-TTL:"),
            msg("S.a", LATER, "Nats-Schedule-TTL: 5m"),
        ],
        {"allow_msg_ttl": False},
    ),
    "targets and sources": (
        [
            msg("S.a", LATER),
            msg("S.a", LATER, "Nats-Schedule-Target:"),
            msg("S.a", LATER, "Nats-Schedule-Target: S.a"),
            msg("S.a", LATER, "Nats-Schedule-Target: S.*"),
            msg("S.a", LATER, "Nats-Schedule-Target: S..b"),
            msg("S.a", LATER, "Nats-Schedule-Target: other"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Source: S.a"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Source: S.t"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Source: S.>"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Source: other"),
            msg("S.a", LATER, "Nats-Schedule-Target: other", "Nats-Schedule-Source: S.a"),
            msg("S.a", LATER, "Nats-Schedule-Target: other", "Nats-Schedule-Source: other"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Source:"),
            msg("S.a", LATER, TARGET, "Nats-Schedule-Source: S.c"),
        ],
        {},
    ),
    "of literal subjects": (
        [
            msg("S.a", LATER, "Nats-Schedule-Target: S.b"),
            msg("S.a", LATER, "Nats-Schedule-Target: S.c"),
            msg("S.a", LATER, "Nats-Schedule-Target: S.b", "Nats-Schedule-Source: S.c"),
        ],
        {"subjects": ["S.a", "S.b"]},
    ),
    "transformed": (
        [
            msg("S.a.x", LATER, "Nats-Schedule-Target: S.b.x"),
            msg("S.a.x", LATER, "Nats-Schedule-Target: S.a.x"),
            msg("S.a.x", LATER, "Nats-Schedule-Target: S.c"),
        ],
        {"subject_transform": {"src": "S.a.*", "dest": "S.b.$1"}},
    ),
    "ends": (
        [
            msg("S.plain"),
            msg("S.a", LATER, TARGET),
            msg("S.b", "Nats-Schedule-Next: purge"),
            msg("S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler:"),
            msg("S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.*"),
            msg("S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.b"),
            msg("S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.plain"),
            msg("S.b", "Nats-Schedule-Next: 2100-01-01T00:00:00Z", "Nats-Scheduler: S.a"),
            msg("S.b", "Nats-Schedule-Next: Purge", "Nats-Scheduler: S.a"),
            msg("S.b", "Nats-Scheduler: S.a"),
            msg("S.b", "Nats-Schedule-Next:", "Nats-Scheduler:"),
            msg("S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.nothing"),
            msg("S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.a"),
            msg("S.c", LATER, TARGET, "Nats-Schedule-Next: purge", "Nats-Scheduler: S.plain"),
            msg("S.c", LATER, TARGET),
            msg("S.d", LATER, TARGET, "Nats-Schedule-Next: purge", "Nats-Scheduler: S.c"),
            msg("S.e", "Nats-Rollup: all", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.d"),
        ],
        {},
    ),
    "not allowed": (
        [
            msg("S.a", LATER, TARGET),
            msg("S.a", "Nats-Schedule: x"),
            msg("S.a", "Nats-Schedule-Time-Zone: No/Where"),
            msg("S.a", "Nats-Schedule-Time-Zone:"),
            msg("S.a", "Nats-Schedule-Time-Zone: UTC"),
            msg("S.a", "Nats-Schedule: 0 0 0 1 1 *", TARGET, "Nats-Schedule-Time-Zone: UTC"),
            msg("S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.a"),
            msg("S.b", "Nats-Schedule-Next: now", "Nats-Scheduler: S.a"),
        ],
        {"allow_msg_schedules": False},
    ),
    "sizes": (
        [msg("S.a", LATER, TARGET), msg("S.a", LATER, TARGET, "Nats-Rollup: sub")],
        {"max_msg_size": 100},
    ),
    "in a batch": (
        [
            part(1, "S.a", LATER, TARGET),
            part(2, "S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.a", commit=True),
            part(1, "S.a"),
            part(2, "S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.a", commit=True),
            part(1, "S.a"),
            part(2, "S.a", LATER, TARGET, commit=True),
            part(1, "S.a", LATER, TARGET),
            part(2, "S.a", commit=True),
            msg("S.c", LATER, TARGET),
            part(1, "S.c"),
            part(2, "S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.c", commit=True),
            part(1, "S.b", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.c", commit=True),
            part(1, "S.d", LATER, "Nats-Schedule-Target: other", commit=True),
            part(1, "S.d", LATER, TARGET, "Nats-Rollup: all", commit=True),
        ],
        {"allow_atomic": True},
    ),
    "nobody is interested": ([msg("S.a", LATER, TARGET), msg("S.a")], {"retention": "interest"}),
}


def told(
    streams: Streams, messages: list[Message], config: dict[str, Any]
) -> tuple[list[bytes], Stored, tuple[int, int, int]]:
    name = add(streams, {**ALLOWED, **config})
    with Client(streams.address) as client:
        replies = [reply.replace(name.encode(), b"NAME") for reply in publish(client, messages, name)]
        state = streams.state(name)
        return replies, stored(client, name, state[2]), state


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("case", CHECKS.values(), ids=CHECKS.keys())
def test_checks(
    tested: GnatsStreams,
    compared: ReferenceStreams,
    case: tuple[list[Message], dict[str, Any]],
    storage: str,
) -> None:
    messages, config = case
    config = config | {"storage": storage}
    assert told(tested, messages, config) == told(compared, messages, config)


# -- patterns ------------------------------------------------------------------------------------------------

WORDS = [
    "*", "?", "*/2", "*/1", "0", "5", "59", "60", "23", "24", "31", "32", "1", "12", "13", "6", "7", "1-5",
    "5-1", "1-5/2", "0/3",
    "mon", "SUN-wed", "jan", "Dec", "1,2", "1,", ",", "*-3", "1-2-3", "1/2/3", "-", "/", "x", "+1", "-1",
    "01", "*/0", "1/99", "",
]  # fmt: skip
WHOLE = ["@hourly", "@daily", "@yearly", "@Weekly", "@midnight ", "@reboot", "@every ", "@at ", "@every", "@"]
DURATIONS = [
    "1s",
    "999ms",
    "1.5s",
    "1h30m",
    "5",
    "-5s",
    "1e9s",
    "0",
    "2562047h",
    "2562048h",
    "1s1",
    " 1s",
    "1µs",
    "1d",
]
MOMENTS = [
    "2100-01-01T00:00:00Z", "2100-01-01T00:00:00.5Z", "2100-01-01T00:00:00,5Z", "2100-01-01T0:00:00Z",
    "2100-1-01T00:00:00Z",
    "2100-01-01T00:00:00+01:00", "2100-01-01T00:00:00+24:60", "2100-01-01T00:00:00+25:00",
    "2100-01-01T00:00:00z",
    "2100-01-01T24:00:00Z", "2100-01-01T23:59:60Z", "2100-02-29T00:00:00Z", "2104-02-29T00:00:00Z",
    "2100-01-01 00:00:00Z",
    "2100-01-01T00:00:00", "2100-01-01T00:00:00.Z", "02100-01-01T00:00:00Z", "2100-01-01T00:00:00+0100", "",
]  # fmt: skip
ZONES = [
    "UTC",
    "Local",
    "Europe/Berlin",
    "EST",
    "CET",
    "Europe",
    "utc",
    "No/Where",
    "",
    "Europe/Berlin ",
    "./UTC",
    "zone.tab",
]


def pattern(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(WHOLE)
    if kind < 0.2:
        return f"@every {rng.choice(DURATIONS)}"
    if kind < 0.35:
        return f"@at {rng.choice(MOMENTS)}"
    words = [rng.choice(WORDS) if rng.random() < 0.4 else rng.choice("1*") for _ in range(6)]
    if kind < 0.45:
        words = words[: rng.randint(0, 6)] + ["*"] * rng.randint(0, 2)
    return rng.choice([" ", " ", " ", "  ", "\t", "\u2003", "\u00a0"]).join(words)


def test_the_same_patterns_are_taken(tested: GnatsStreams, compared: ReferenceStreams) -> None:
    rng = random.Random(51)
    # A pattern that no time matches keeps nats-server busy for seconds.
    patterns = [text for text in (pattern(rng) for _ in range(1500)) if not re.match(r",\s", text)]
    headers = [
        [f"Nats-Schedule: {text}"]
        + ([f"Nats-Schedule-Time-Zone: {rng.choice(ZONES)}"] if rng.random() < 0.3 else [])
        for text in patterns
    ]
    replies = []
    for streams in (tested, compared):
        name = add(streams, {"allow_msg_schedules": True, "storage": "memory"})
        # A bad source refuses those with a good pattern: its check comes after the pattern's.
        lines = [f"Nats-Schedule-Target: {name}.t", "Nats-Schedule-Source: other"]
        messages = [
            (b"%s.a" % name.encode(), b"", [line.encode() for line in (*header, *lines)])
            for header in headers
        ]
        with Client(streams.address) as client:
            replies.append([reply.replace(name.encode(), b"NAME") for reply in client.ask_all(messages)])
    for header, ours, theirs in zip(headers, *replies, strict=True):
        assert ours == theirs, header


# -- due schedules -------------------------------------------------------------------------------------------


def soon(seconds: float) -> str:
    return f"Nats-Schedule: @at {(datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()}"


def fired() -> dict[str, tuple[list[Message], int, dict[str, Any]]]:
    """Return by case: messages, the number stored with those that schedules make, and a configuration."""
    return {
        "one message": (
            [
                msg(
                    "S.a",
                    PAST,
                    TARGET,
                    "Nats-Schedule-TTL: 5m",
                    "Nats-Expected-Stream: S",
                    "Nats-Expected-Last-Sequence: 0",
                    "Nats-Msg-Id: X",
                    "Nats-TTL: 60s",
                    "Header:  Value",
                    "Header: again",
                    "Nats-Scheduling: stays not",
                    payload=b"hello",
                )
            ],
            2,
            {},
        ),
        "nothing but a schedule": ([msg("S.a", PAST, TARGET, payload=b"")], 2, {}),
        "another message": (
            [
                msg("S.data", "Header: Value", "Nats-Msg-Id: 7", "Nats-Rollup: sub", payload=b"data"),
                msg("S.a", PAST, TARGET, "Nats-Schedule-Source: S.data", "Header: Other"),
            ],
            3,
            {},
        ),
        "another message that names a schedule": (
            [
                msg("S.data", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.victim", payload=b"data"),
                msg("S.a", "Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-Source: S.data"),
            ],
            4,
            {},
        ),
        "another message that is not there": (
            [msg("S.a", PAST, TARGET, "Nats-Schedule-Source: S.data", "Header: Own", payload=b"own")],
            2,
            {},
        ),
        "a rollup of the target": (
            [msg("S.t"), msg("S.t"), msg("S.a", PAST, TARGET, "Nats-Schedule-Rollup: sub")],
            4,
            {},
        ),
        "in the order of their sequences": (
            [msg(f"S.{subject}", soon(0.9), TARGET, payload=subject.encode()) for subject in "cab"],
            6,
            {},
        ),
        "an interval": (
            [msg("S.a", "Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-TTL: 5m", "A: b")],
            3,
            {},
        ),
        "a clock": (
            [msg("S.a", "Nats-Schedule: * * * * * *", TARGET, "Nats-Schedule-Time-Zone: Asia/Kolkata")],
            3,
            {},
        ),
        "a target that has a schedule": (
            [msg("S.a", PAST, "Nats-Schedule-Target: S.b"), msg("S.b", soon(0.8), TARGET)],
            4,
            {},
        ),
        "ended by a message": (
            [msg("S.a", soon(0.5), TARGET), msg("S.a"), msg("S.b", soon(1), TARGET, payload=b"b")],
            4,
            {},
        ),
        "ended early": (
            [
                msg("S.a", soon(0.5), TARGET),
                msg("S.c", "Nats-Schedule-Next: purge", "Nats-Scheduler: S.a"),
                msg("S.b", soon(1), TARGET, payload=b"b"),
            ],
            4,
            {},
        ),
        "replaced": (
            [msg("S.a", LATER, TARGET, payload=b"1"), msg("S.a", soon(0.5), TARGET, payload=b"2")],
            3,
            {},
        ),
        "of a batch": (
            [part(1, "S.a", PAST, TARGET), part(2, "S.b", PAST, TARGET, commit=True)],
            4,
            {"allow_atomic": True},
        ),
        "transformed": (
            [msg("S.a.x", PAST, "Nats-Schedule-Target: S.a.y")],
            2,
            {"subject_transform": {"src": "S.a.*", "dest": "S.b.$1"}},
        ),
        "one of each subject": (
            [msg("S.t"), msg("S.a", PAST, TARGET)],
            3,
            {"max_msgs_per_subject": 1},
        ),
        "a queue of work": ([msg("S.a", PAST, TARGET)], 2, {"retention": "workqueue"}),
        "in memory": ([msg("S.a", PAST, TARGET, "Nats-Schedule-TTL: 5m")], 2, {"storage": "memory"}),
    }


Outcome = tuple[list[tuple[bytes, list[bytes], bytes]], Stored, tuple[int, int, int]]
CASES = list(fired())


def outcomes(streams: Streams) -> dict[str, Outcome]:
    """Run all cases at once, to wait once; return for each the republished and stored messages, and state."""
    found: dict[str, Outcome] = {}
    names: dict[bytes, str] = {}
    with Client(streams.address) as client, Client(streams.address) as listener:
        listener.connection.send(b"SUB again.> 2\r\n")
        listener.connection.fence()
        cases = fired()
        for case, (messages, _, config) in cases.items():
            again = {"src": "S.>", "dest": "again.S.>"}
            name = add(streams, {**ALLOWED, "republish": again, **config})
            names[name.encode()] = case
            client.connection.send(
                b"".join(
                    message(named(subject, name), payload, [named(line, name) for line in header])
                    for subject, payload, header in messages
                )
            )
        seen: dict[str, list[tuple[bytes, list[bytes], bytes]]] = {case: [] for case in cases}
        missing = set(cases)
        while missing:
            op = listener.connection.read_op()
            if op == b"PING\r\n":
                listener.connection.send(b"PONG\r\n")
                continue
            line, _, rest = op.partition(b"\r\n")
            subject, size = line.split(b" ")[1], int(line.split(b" ")[-2])
            name_bytes = subject.split(b".")[1]
            case = names[name_bytes]
            lines = TIMES.sub(b"TIME", rest[:size].replace(name_bytes, b"NAME")).split(b"\r\n")
            if case in missing:
                seen[case].append((subject.replace(name_bytes, b"NAME"), lines, rest[size:-2]))
                if len(seen[case]) == cases[case][1]:
                    missing.remove(case)
        for name_bytes, case in names.items():
            state = streams.state(name_bytes.decode())
            if cases[case][1] == state[2]:
                found[case] = seen[case], stored(client, name_bytes.decode(), state[2]), state
            else:  # a repeating schedule has made more
                found[case] = seen[case], [], (0, 0, 0)
    return found


@pytest.fixture(
    scope="module", params=[kind for kind in selected() if not kind.is_reference], ids=lambda kind: kind.name
)
def ours(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    kind: Kind = request.param
    with serve(kind, tmp_path_factory.mktemp("ours")) as streams:
        yield outcomes(streams)


@pytest.fixture(scope="module")
def theirs(compared: ReferenceStreams) -> dict[str, Outcome]:
    return outcomes(compared)


@pytest.mark.parametrize("case", CASES)
def test_what_comes_of_schedules(ours: dict[str, Outcome], theirs: dict[str, Outcome], case: str) -> None:
    assert ours[case][0] == theirs[case][0]
    if ours[case][1] and theirs[case][1]:
        assert ours[case] == theirs[case]


def test_what_repeats_goes_on_after_what_could_not_be_stored(tested: GnatsStreams) -> None:
    """A repeating schedule goes on after a refused message. In nats-server it resumes at the next start."""
    large = {"max_msg_size": 10_000, **ALLOWED}
    name = add(tested, large)
    config = {"name": name, "subjects": [f"{name}.>"], "allow_direct": True, **large}
    again = {"republish": {"src": f"{name}.>", "dest": f"again.{name}.>"}}
    with Client(tested.address) as client, Client(tested.address) as listener:
        listener.connection.send(b"SUB again.%s.> 2\r\n" % name.encode())
        listener.connection.fence()
        publish(client, [msg("S.data", payload=b"x" * 1000)], name)
        tested.update(**config | again | {"max_msg_size": 300})
        every = msg("S.a", "Nats-Schedule: @every 1s", TARGET, "Nats-Schedule-Source: S.data")
        publish(client, [every, msg("S.b", soon(1.6), TARGET)], name)
        # Republished: both schedules, and the message of the second, which is due after the first.
        assert [listener.read()[1] for _ in range(3)] == [b"x"] * 3
        tested.update(**config | again)
        assert listener.read()[1] == b"x" * 1000


def test_a_time_before_all_others_is_due(tested: GnatsStreams) -> None:
    name = add(tested, {**ALLOWED, "republish": {"src": "S.t", "dest": "again.S.t"}})
    with Client(tested.address) as client:
        client.connection.send(b"SUB again.%s.> 2\r\n" % name.encode())
        publish(client, [msg("S.a", "Nats-Schedule: @at 0001-06-01T00:00:00Z", TARGET, payload=b"old")], name)
        assert client.read()[1] == b"old"
