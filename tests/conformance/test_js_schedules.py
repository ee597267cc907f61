"""Message schedules after restarts, and in a store directory of the other server."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from support.caller import Caller
from support.jetstream import config
from support.launch import Launch, Move
from support.schedules import read_schedules
from support.servers import Kind
from support.wire import header

from gnats.go.text import SECOND
from gnats.go.times import unix_ns
from gnats.store.times.cron import probe_due

pytestmark = pytest.mark.timeout(120)

BAD = -1
STREAM: dict[str, Any] = {
    "name": "S",
    "subjects": ["s.>"],
    "allow_msg_schedules": True,
    "allow_msg_ttl": True,
}
ZONES = [
    "Europe/Amsterdam", "America/New_York", "America/Havana", "America/Santiago", "Africa/Cairo",
    "Asia/Beirut", "Australia/Lord_Howe", "Pacific/Chatham", "America/Scoresbysund", "Asia/Kolkata",
]  # fmt: skip


def state_file(directory: Path) -> Path:
    (found,) = directory.rglob("sched.db")
    return found


def schedule(caller: Caller, subject: str, pattern: str, *more: str, payload: bytes = b"") -> int:
    """Store a schedule; return its sequence."""
    lines = header(f"Nats-Schedule: {pattern}", "Nats-Schedule-Target: s.t", *more)
    answer = caller.request(subject, payload, lines).json
    assert "error" not in answer, answer
    return int(answer["seq"])


def changes(zone: str) -> list[datetime]:
    """Return the days of the next four years on which a zone's offset changes."""
    clock = ZoneInfo(zone)
    day = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    days = [day + timedelta(days=n) for n in range(4 * 365)]
    offsets = [when.astimezone(clock).utcoffset() for when in days]
    return [days[i] for i in range(1, len(days)) if offsets[i] != offsets[i - 1]]


def patterns() -> list[tuple[str, str | None]]:
    """Return (pattern, zone): times around each change of a zone's offset, and random ones."""
    rng = random.Random(7)
    found: list[tuple[str, str | None]] = []
    for zone in ZONES:
        for day in changes(zone):
            for hour, minute in ((0, 0), (0, 30), (1, 30), (2, 0), (2, 15), (2, 45), (3, 0), (23, 30)):
                found.append((f"0 {minute} {hour} {day.day} {day.month} *", zone))
            found.append((f"0 */30 0-3 {day.day} {day.month} *", zone))
        for _ in range(10):
            words = [rng.choice(["*", "*/7", "0", "30", "5-20/3"]) for _ in range(2)]
            words += [rng.choice(["*", "0", "2", "1-3", "23"]), rng.choice(["*", "1", "31", "?"])]
            words += [rng.choice(["*", "2", "mar-oct", "10/2"]), rng.choice(["*", "0", "mon-fri", "6"])]
            found.append((" ".join(words), rng.choice([zone, None])))
    return [*found, ("0 0 0 31 2-4 *", None), ("@monthly", None), ("@every 1h30m", None)]


def test_times_are_those_of_the_patterns(launch: Launch, tmp_path: Path) -> None:
    """The due times in sched.db are those that gnats computes, for both servers."""
    server = launch(config=config(tmp_path / "js"))
    stored = {}
    with Caller(server) as caller:
        caller.request("$JS.API.STREAM.CREATE.S", STREAM)
        for number, (pattern, zone) in enumerate(patterns()):
            lines = [f"Nats-Schedule: {pattern}", "Nats-Schedule-Target: s.t"]
            lines += [f"Nats-Schedule-Time-Zone: {zone}"] if zone else []
            answer = caller.request(f"s.{number}", b"", header(*lines)).json
            if "error" in answer:
                assert due(pattern, zone, time.time_ns())[0] == BAD, pattern
            else:
                message = caller.request("$JS.API.STREAM.MSG.GET.S", {"seq": answer["seq"]}).json["message"]
                stored[answer["seq"]] = f"s.{number}".encode(), pattern, zone, unix_ns(message["time"])
    server.stop()
    found = read_schedules(state_file(tmp_path / "js"))
    assert found.keys() == {subject for subject, _, _, _ in stored.values()}
    for seq, (subject, pattern, zone, when) in stored.items():
        expected = due(pattern, zone, when)[1]
        if expected > when + 60 * SECOND:  # a nearer one may have come due since, and moved on
            assert found[subject] == (seq, expected), (pattern, zone)


def due(pattern: str, zone: str | None, when: int) -> tuple[int, int]:
    kind, ts, _ = probe_due(pattern.encode(), zone.encode() if zone else None, when, when)
    return kind, ts


def fill(caller: Caller) -> None:
    caller.request("$JS.API.STREAM.CREATE.S", STREAM)
    schedule(caller, "s.every", "@every 1h")
    schedule(caller, "s.clock", "0 0 5 * * *", "Nats-Schedule-Time-Zone: Europe/Amsterdam")
    schedule(caller, "s.replaced", "@every 1h")
    schedule(caller, "s.replaced", "@every 2h")
    schedule(caller, "s.ended", "@every 1h")
    caller.request("s.ended", b"plain")
    seq = schedule(caller, "s.deleted", "@every 1h")
    caller.request("$JS.API.STREAM.MSG.DELETE.S", {"seq": seq})
    schedule(caller, "s.purged", "@every 1h")
    caller.request("$JS.API.STREAM.PURGE.S", {"filter": "s.purged"})
    soon = (datetime.now(UTC) + timedelta(seconds=4)).isoformat()  # when the server has stopped
    schedule(caller, "s.missed", f"@at {soon}", "Nats-Schedule-TTL: 5m", "A: b", payload=b"missed")


LEFT = {b"s.every", b"s.clock", b"s.replaced"}


def missed(caller: Caller) -> tuple[bytes, bytes]:
    """Return header and payload of the message made for the schedule that came due while no server ran."""
    deliver = caller.subscribe("deliver")
    assert deliver
    consumer = {"deliver_subject": "deliver", "ack_policy": "none", "filter_subject": "s.t"}
    answer = caller.request("$JS.API.CONSUMER.CREATE.S", {"stream_name": "S", "config": consumer}).json
    assert "error" not in answer, answer
    message = caller.next_on("s.t")
    return message.header, message.payload


MADE = (
    b"NATS/1.0\r\nA: b\r\nNats-Scheduler: s.missed\r\nNats-Schedule-Next: purge\r\nNats-TTL: 5m\r\n\r\n",
    b"missed",
)


def test_schedules_are_there_after_a_restart(launch: Launch, tmp_path: Path, kind: Kind) -> None:
    server = launch(config=config(tmp_path / "js"))
    with Caller(server) as caller:
        fill(caller)
    server.stop()
    before = read_schedules(state_file(tmp_path / "js"))
    assert LEFT | {b"s.missed"} <= before.keys()
    server.start_again()
    with Caller(server) as caller:
        assert missed(caller) == MADE
    server.stop()
    after = read_schedules(state_file(tmp_path / "js"))
    assert {name: after[name] for name in LEFT} == {name: before[name] for name in LEFT}
    if not kind.is_reference:  # the reference forgets ended schedules later
        assert after.keys() == LEFT


def test_schedules_are_found_after_a_crash(launch: Launch, tmp_path: Path, kind: Kind) -> None:
    server = launch(config=config(tmp_path / "js"))
    with Caller(server) as caller:
        fill(caller)
    server.kill()
    server.start_again()
    with Caller(server) as caller:
        assert missed(caller) == MADE
    server.stop()
    after = read_schedules(state_file(tmp_path / "js"))
    assert after.keys() >= LEFT
    if not kind.is_reference:  # the reference resumes schedules that later messages had ended
        assert after.keys() == LEFT


def test_schedules_move_between_the_servers(move: Move, tmp_path: Path) -> None:
    _, second = move(fill)
    before = read_schedules(state_file(tmp_path / "js"))
    with Caller(second) as caller:
        assert missed(caller) == MADE
    second.stop()
    after = read_schedules(state_file(tmp_path / "copy"))
    assert {name: after[name] for name in LEFT} == {name: before[name] for name in LEFT}
