"""Test JetStream's waits: begin all kinds of them on a server, and check when each ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from gnats.go.text import SECOND

from .caller import Caller, Listening, Message
from .servers import TIMEOUT

MS = 10**6
NEVER = 2**63 - 1
"""The longest duration there is, in ns: 292 years."""


def header(*lines: str) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"


class Waiter(Caller):
    """A client that notes the time of each message it reads (monotonic ns)."""

    _names: Iterator[int]

    def __init__(self, server: Listening, inbox: str = "_INBOX.waits") -> None:
        self._names = count(1)
        self.came: dict[int, int] = {}
        super().__init__(server, inbox=inbox)

    def _keep(self, op: bytes) -> bool:
        kept = super()._keep(op)
        if kept:
            self.came[id(self._waiting[-1])] = time.monotonic_ns()
        return kept

    def when(self, message: Message) -> int:
        return self.came[id(message)]

    def api(self, verb: str, body: object = None, *, error: bool = False) -> Any:
        """Return the API's answer, which must be an error if `error`, and no error otherwise."""
        answer = self.request(f"$JS.API.{verb}", body).json
        assert ("error" in answer) is error, (verb, body, answer)
        return answer

    def stream(self, name: str, **config: Any) -> None:
        body = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"} | config
        self.api(f"STREAM.CREATE.{name}", body)

    def consumer(self, stream: str, name: str, **config: Any) -> Any:
        body = {"stream_name": stream, "config": {"name": name, "ack_policy": "explicit"} | config}
        return self.api(f"CONSUMER.CREATE.{stream}.{name}", body)

    def store(self, subject: str, *lines: str, payload: bytes = b"x") -> dict[str, Any]:
        answer = self.request(subject, payload, header(*lines) if lines else b"").json
        assert "error" not in answer, (subject, lines, answer)
        return dict(answer)

    def store_many(self, subjects: list[str], *lines: str) -> None:
        """Store a message on each subject; return when the last one is acknowledged."""
        for subject in subjects[:-1]:
            self.publish(subject, b"x", "", header(*lines) if lines else b"")
        self.store(subjects[-1], *lines)

    def pull(self, stream: str, consumer: str, **request: Any) -> str:
        """Send a pull request; return the sid that its messages come with. `request` are its members."""
        inbox = f"{self._inbox}-pulls.{next(self._names)}"
        sid = self.subscribe(inbox)
        self.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(request).encode(), inbox)
        return sid

    def next_with(self, sid: str) -> Message:
        """Return the next message with a sid; keep the others for next()."""
        skipped: list[Message] = []
        while (message := self.next()).sid != sid:
            skipped.append(message)
        self._waiting[:0] = skipped
        return message

    def ack(self, message: Message, what: bytes = b"+ACK") -> None:
        self.publish(message.reply, what)

    def ack_sync(self, message: Message, what: bytes = b"+ACK") -> None:
        """Acknowledge a message and wait until the server confirms it."""
        self.request(message.reply, what)

    def until(self, verb: str, true: Any, body: object = None) -> tuple[int, Any]:
        """Repeat an API request until true(answer); return when it was sent (monotonic ns), and the answer.

        Raises AssertionError with the last answer after TIMEOUT.
        """
        deadline = time.monotonic() + TIMEOUT
        while True:
            asked = time.monotonic_ns()
            answer = self.request(f"$JS.API.{verb}", body).json
            if true(answer):
                return asked, answer
            assert time.monotonic() < deadline, answer
            time.sleep(0.02)


# -- many waits side by side -----------------------------------------------------------------------------


@dataclass
class Wait:
    """A wait that is due `after` ns from `start` (monotonic ns).

    The first message with its sid that `is_end` accepts ends it; `ended` is when that came (monotonic ns).
    """

    name: str
    sid: str
    is_end: Callable[[Message], bool]
    after: int
    start: int
    ended: int | None = None

    @property
    def due(self) -> int:
        return self.start + self.after


class Waits:
    """Waits that run at the same time on one server; none may end before it is due."""

    def __init__(self, client: Waiter) -> None:
        self.client = client
        self.waits: list[Wait] = []

    def add(
        self, name: str, sid: str, is_end: Callable[[Message], bool], after: int, start: int | None = None
    ) -> None:
        """Add a wait. `start` None is now, for a request that is about to be sent."""
        begun = time.monotonic_ns() if start is None else start
        self.waits.append(Wait(name, sid, is_end, after, begun))

    def end(self) -> dict[str, int]:
        """Read messages until all waits have ended; return by name how late each was (ns).

        Raises AssertionError for a wait that ends too early or never, or after one that was due APART later.
        """
        client, open_ = self.client, list(self.waits)
        while open_:
            try:
                message = client.next()
            except TimeoutError as exc:
                raise AssertionError(f"these never ended: {[wait.name for wait in open_]}") from exc
            came = client.when(message)
            for wait in open_:
                if wait.sid == message.sid and wait.is_end(message):
                    wait.ended = came
                    assert came >= wait.due, f"{wait.name} ended {(wait.due - came) / MS} ms too early"
                    open_.remove(wait)
                    break
        for wait in self.waits:
            for other in self.waits:
                assert wait.ended and other.ended
                if other.due - wait.due >= APART:
                    assert wait.ended <= other.ended, f"{wait.name} ended after {other.name}"
        return {wait.name: wait.ended - wait.due for wait in self.waits if wait.ended}


APART = 4000 * MS
"""Waits due this many ns apart must end in order: inactive pull consumers end up to 1 s late by design."""

BATCH_TIMEOUT = 700 * MS
CONFIG = "limits { batch { timeout: 700ms } }"
"""JetStream options that all_waits() needs."""


def redelivered(times: int) -> Callable[[Message], bool]:
    """Match the delivery of a message after `times` earlier deliveries of it."""
    return lambda message: (
        message.reply.startswith("$JS.ACK.") and message.reply.split(".")[4] == str(times + 1)
    )


def says(text: str) -> Callable[[Message], bool]:
    return lambda message: message.status == text


def about(**members: str) -> Callable[[Message], bool]:
    """Match an advisory with these members."""

    def found(message: Message) -> bool:
        advisory = message.json
        return all(advisory.get(name) == value for name, value in members.items())

    return found


def rfc3339(ns: int) -> str:
    return datetime.fromtimestamp(ns // SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ns % SECOND:09}Z"


def set_up(client: Waiter) -> None:
    """Make the streams and consumers of all_waits() and crowd()."""
    client.stream("Q", max_msgs_per_subject=-1)
    client.stream(
        "M",
        allow_msg_ttl=True,
        subject_delete_marker_ttl=SECOND,
        allow_msg_schedules=True,
        allow_rollup_hdrs=True,
        max_age=3600 * SECOND,
    )
    client.stream("A", max_age=SECOND, allow_msg_ttl=True, subject_delete_marker_ttl=SECOND)
    client.stream("B", allow_atomic=True)
    for name, more in CONSUMERS.items():
        client.consumer("Q", name, durable_name=name, filter_subject=f"Q.{name}", max_waiting=5000, **more)
    client.consumer("M", "all", durable_name="all", ack_policy="none", deliver_subject="deliver.M")
    client.consumer("A", "all", durable_name="all", ack_policy="none", deliver_subject="deliver.A")


CONSUMERS: dict[str, dict[str, Any]] = {
    "expire": {"max_ack_pending": -1},
    "beat": {},
    "ackwait": {"ack_wait": 800 * MS, "max_ack_pending": -1},
    "backoff": {"backoff": [400 * MS, 1100 * MS], "max_deliver": 4},
    "nak": {"ack_wait": 3600 * SECOND, "max_ack_pending": -1},
    "progress": {"ack_wait": 1000 * MS},
    "far": {"ack_wait": 7 * 10**18, "max_ack_pending": -1},
}


def all_waits(client: Waiter) -> Waits:
    """Begin a wait of every kind; call it once a server, after set_up()."""
    waits = Waits(client)
    advisories = client.subscribe("$JS.EVENT.ADVISORY.>")
    markers, aged = client.subscribe("deliver.M"), client.subscribe("deliver.A")
    # The longest first: consumers with the default threshold.
    waits.add(
        "inactive without a threshold",
        advisories,
        about(action="delete", consumer="named"),
        5 * SECOND,
    )
    client.consumer("Q", "named")
    begun = time.monotonic_ns()
    answer = client.api("CONSUMER.CREATE.Q", {"stream_name": "Q", "config": {"ack_policy": "explicit"}})
    waits.add(
        "inactive without a name",
        advisories,
        about(action="delete", consumer=answer["name"]),
        5 * SECOND,
        begun,
    )
    for after in (300, 900, 1700, 2600):
        begun = time.monotonic_ns()
        sid = client.pull("Q", "expire", batch=1, expires=after * MS)
        waits.add(f"request of {after} ms", sid, says("408 Request Timeout"), after * MS, begun)
    begun = time.monotonic_ns()
    sid = client.pull("Q", "beat", batch=1, expires=2200 * MS, idle_heartbeat=400 * MS)
    for n in (1, 2, 3):
        waits.add(f"heartbeat {n} of a request", sid, says("100 Idle Heartbeat"), n * 400 * MS, begun)
    waits.add("request with heartbeats", sid, says("408 Request Timeout"), 2200 * MS, begun)
    for name, times in (("ackwait", (800, 1600)), ("backoff", (400, 1500, 2600))):
        begun = time.monotonic_ns()
        client.store(f"Q.{name}")
        sid = client.pull("Q", name, batch=10, expires=20 * SECOND)
        for n, after in enumerate(times, 1):
            waits.add(f"{name} {n}", sid, redelivered(n), after * MS, begun)
    client.store("Q.nak")
    sid = client.pull("Q", "nak", batch=2, expires=20 * SECOND)
    message = client.next_with(sid)
    waits.add("nak with a delay", sid, redelivered(1), 900 * MS)
    client.ack(message, b'-NAK {"delay": 900000000}')
    client.store("Q.progress")
    sid = client.pull("Q", "progress", batch=2, expires=20 * SECOND)
    message = client.next_with(sid)
    waits.add("in progress", sid, redelivered(1), 1000 * MS)
    client.ack(message, b"+WPI")
    name = "pull"
    waits.add("inactive pull consumer", advisories, about(action="delete", consumer=name), 700 * MS)
    client.consumer("Q", name, inactive_threshold=700 * MS)
    name = "push"
    sid = client.subscribe(f"deliver.{name}")
    client.consumer("Q", name, inactive_threshold=600 * MS, deliver_subject=f"deliver.{name}")
    waits.add("inactive push consumer", advisories, about(action="delete", consumer=name), 600 * MS)
    client.send(f"UNSUB {sid}\r\n".encode())
    name = "paused"
    sid = client.subscribe(f"deliver.{name}")
    client.store(f"Q.{name}")
    begun, until = time.monotonic_ns(), time.time_ns() + 1200 * MS
    client.consumer(
        "Q",
        name,
        filter_subject=f"Q.{name}",
        deliver_subject=f"deliver.{name}",
        pause_until=rfc3339(until),
        idle_heartbeat=500 * MS,
    )
    waits.add("heartbeat of a push consumer", sid, says("100 Idle Heartbeat"), 500 * MS, begun)
    waits.add("pause", sid, lambda message: message.subject == f"Q.{name}", 1200 * MS, begun)
    pinned = "pinned"
    client.consumer(
        "Q",
        pinned,
        filter_subject=f"Q.{pinned}",
        priority_groups=["g"],
        priority_policy="pinned_client",
        priority_timeout=600 * MS,
    )
    client.store(f"Q.{pinned}")
    begun = time.monotonic_ns()
    client.next_with(client.pull("Q", pinned, batch=1, expires=20 * SECOND, group="g"))
    waits.add("pin", advisories, about(reason="timeout", consumer=pinned), 600 * MS, begun)
    for after in (1, 2, 3):
        begun = time.monotonic_ns()
        client.store(f"M.ttl.{after}", f"Nats-TTL: {after}s")
        waits.add(f"TTL of {after} s", markers, is_marker(f"M.ttl.{after}"), after * SECOND, begun)
    begun = time.monotonic_ns()
    client.store("A.age")
    waits.add("age", aged, is_marker("A.age"), SECOND, begun)
    begun, when = time.monotonic_ns(), time.time_ns() + 1300 * MS
    client.store("M.schedule", f"Nats-Schedule: @at {rfc3339(when)}", "Nats-Schedule-Target: M.target")
    waits.add("schedule", markers, lambda message: message.subject == "M.target", 1300 * MS, begun)
    begun = time.monotonic_ns()
    client.request("B.b", b"x", header("Nats-Batch-Id: open", "Nats-Batch-Sequence: 1"))
    waits.add("batch", advisories, about(batch="open", reason="timeout"), BATCH_TIMEOUT, begun)
    return waits


def is_marker(subject: str) -> Callable[[Message], bool]:
    return lambda message: message.subject == subject and b"Nats-Marker-Reason: MaxAge" in message.header


def deliveries(client: Waiter, consumer: str, n: int) -> Iterator[Message]:
    """Pull n messages of Q and yield them; on a slow machine some come again before their ack."""
    seen: set[int] = set()
    while missing := n - len(seen):
        sid = client.pull("Q", consumer, batch=missing, expires=20 * SECOND)
        for _ in range(missing):
            message = client.next_with(sid)
            if not message.reply:  # the request has expired
                break
            seen.add(message.ack[1])
            yield message


def crowd(client: Waiter, n: int) -> None:
    """Begin n waits of each kind that end early, are put off, or are centuries away.

    They are in the streams and consumers that all_waits() uses.
    """
    if n == 0:
        return
    far = {"expires": 6 * 10**18, "batch": 1}
    # Satisfied: each request has its message, each message its ack.
    sids = [client.pull("Q", "expire", batch=1, expires=2 * SECOND) for _ in range(n)]
    client.store_many(["Q.expire"] * n)
    for sid in sids:
        message = client.next_with(sid)
        while not message.reply:  # the request expired before its message came: the machine is slow
            message = client.next_with(client.pull("Q", "expire", batch=1, expires=2 * SECOND))
        client.ack(message)
    # Cancelled: the inbox has no subscription any more. Then requests centuries away.
    for _ in range(n):
        sid = client.pull("Q", "expire", batch=1, expires=2 * SECOND)
        client.send(f"UNSUB {sid}\r\n".encode())
    for _ in range(n):
        client.pull("Q", "expire", **far)
    for name, answers in (
        ("ackwait", [b"+ACK"]),
        ("nak", [b"-NAK 1h", b'-NAK {"delay": 7000000000000000000}']),
    ):
        client.store_many([f"Q.{name}"] * n)
        for i, message in enumerate(deliveries(client, name, n)):
            client.ack(message, answers[i % len(answers)])
    client.store_many(["Q.far"] * n)
    for message in list(deliveries(client, "far", n))[n // 2 :]:
        client.ack(message, b"+WPI")  # put off
    for i in range(n):
        client.publish(f"M.gone.{i}", b"", "", header("Nats-TTL: 1h"))
        client.publish(f"M.far.{i}", b"", "", header("Nats-TTL: 7000000000"))
        client.publish(f"M.moved.{i}", b"", "", header("Nats-TTL: 1h"))
        client.publish(f"M.moved.{i}", b"", "", header("Nats-TTL: 6000000000", "Nats-Rollup: sub"))
        at = ("Nats-Schedule: @at 2261-01-02T03:04:05Z", "Nats-Schedule-Target: M.never")
        client.publish(f"M.ended.{i}", b"", "", header(*at))
        client.publish(f"M.later.{i}", b"", "", header(*at))
    client.api("STREAM.PURGE.M", {"filter": "M.gone.>"})
    client.api("STREAM.PURGE.M", {"filter": "M.ended.>"})
    for i in range(n):
        batch = f"Nats-Batch-Id: done{i}"
        client.publish("B.b", b"", "", header(batch, "Nats-Batch-Sequence: 1"))
        client.store("B.b", batch, "Nats-Batch-Sequence: 2", "Nats-Batch-Commit: 1")
    for i in range(min(n, 100)):
        client.consumer("Q", f"gone{i}", inactive_threshold=SECOND + i * MS)
        client.consumer("Q", f"far{i}", inactive_threshold=7 * 10**18)
        client.api(f"CONSUMER.DELETE.Q.gone{i}")
