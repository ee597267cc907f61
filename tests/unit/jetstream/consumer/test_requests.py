"""Pull requests: parsing, and the order in which the queue serves them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gnats.jetstream.consumer.requests import RequestQueue, read_request

SHORT_HEARTBEAT, HEARTBEAT_TICK = 100_000_000, 10_000_000


def batch(msg: bytes) -> Any:
    req = read_request(msg)
    assert isinstance(req, dict)
    return req["batch"]


@pytest.mark.parametrize(
    ("msg", "n"),
    [
        (b"", 1),
        (b"  \r\n", 1),
        (b"5", 5),
        (b" 7 ", 7),
        (b"+3", 3),
        (b"-3", -3),
        (b"x", 1),
        (b"5x", 1),
        (b"1.5", 1),
        (b"9223372036854775807", 2**63 - 1),
        (b"-9223372036854775808", -(2**63)),
        (b"9223372036854775808", 1),
        (b"-9223372036854775809", 1),
        (b"-", 1),
        (b"[", 1),
        (b"{}", 0),
        (b'{"batch":4}', 4),
    ],
)
def test_batches(msg: bytes, n: int) -> None:
    assert batch(msg) == n


def test_all_of_it() -> None:
    asked = {
        "expires": 10**10,
        "batch": 9,
        "max_bytes": 1024,
        "idle_heartbeat": 10**9,
        "no_wait": True,
        "group": "g",
        "id": "pin",
        "min_pending": 3,
        "min_ack_pending": 4,
        "priority": 5,
    }
    assert read_request(json.dumps(asked).encode()) == {**asked, "group": b"g", "id": b"pin", "json": True}


@pytest.mark.parametrize(
    ("msg", "error"),
    [
        (b'{"idle_heartbeat":6,"expires":10}', "heartbeat value too large"),
        (b'{"idle_heartbeat":1}', "heartbeat value too large"),
        (
            b'{"idle_heartbeat":9223372036854775807,"expires":9223372036854775807}',
            "heartbeat value too large",
        ),
        (b"{", "unexpected end of JSON input"),
        (
            b'{"batch":"1"}',
            "json: cannot unmarshal string into Go struct field .batch of type int",
        ),
    ],
)
def test_refusals(msg: bytes, error: str) -> None:
    assert read_request(msg) == error


def test_a_heartbeat_of_half_the_time_is_fine() -> None:
    assert batch(b'{"batch":1,"idle_heartbeat":5,"expires":10}') == 1


@given(st.binary(max_size=60))
def test_any_request_is_survived(data: bytes) -> None:
    read_request(data)


NEVER = 2**63 - 1
DURATION = st.integers(0, 50) | st.sampled_from([8 * 10**18, 2**63 - 1])


@pytest.mark.parametrize("interval", [1, 10**6, 10**7, SHORT_HEARTBEAT - 1])
def test_heartbeats_of_short_intervals_come_at_ticks_of_a_clock(interval: int) -> None:
    for now in (1, HEARTBEAT_TICK - 1, HEARTBEAT_TICK, 10**18 + 7):
        queue = RequestQueue(2)
        queue.add(b"a", 1, heartbeat=interval, now=now)
        assert queue.due % HEARTBEAT_TICK == 0
        assert 0 < queue.due - (now + interval) <= HEARTBEAT_TICK


@pytest.mark.parametrize("interval", [SHORT_HEARTBEAT, SHORT_HEARTBEAT + 1, 10**9 + 7])
def test_other_heartbeats_come_when_they_are_due(interval: int) -> None:
    queue = RequestQueue(2)
    queue.add(b"a", 1, heartbeat=interval, now=10**18 + 7)
    assert queue.due == 10**18 + 7 + interval


class QueueAgainstModel(RuleBasedStateMachine):
    """The model is a list of [reply, left, priority, due time], in order of arrival by priority."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = RequestQueue(12)
        self.model: list[list[Any]] = []
        self.added = 0

    def put(self, entry: list[Any]) -> None:
        at = len(self.model)
        while at and self.model[at - 1][2] > entry[2]:
            at -= 1
        self.model.insert(at, entry)

    @rule(n=st.integers(-1, 4), priority=st.integers(0, 10), expires=DURATION, heartbeat=DURATION)
    def add(self, n: int, priority: int, expires: int, heartbeat: int) -> None:
        self.added += 1
        reply = b"%d" % self.added
        full = len(self.model) == 12
        now = 10**18 + self.added
        added = self.queue.add(reply, n, priority, expires=expires, heartbeat=heartbeat, now=now)
        assert added is not full
        if not full:
            due = min((min(now + each, NEVER) for each in (expires, heartbeat) if each), default=0)
            if 0 < heartbeat < SHORT_HEARTBEAT:
                tick = (now + heartbeat) // HEARTBEAT_TICK * HEARTBEAT_TICK + HEARTBEAT_TICK
                due = min(now + expires, tick) if expires else tick
            self.put([reply, n, priority, due])

    @rule()
    def pop(self) -> None:
        if not self.model:
            assert self.queue.pop() is None
            return
        entry = self.model.pop(0)
        assert self.queue.pop() == entry[0]
        entry[1] -= 1
        if entry[1] > 0:
            self.put(entry)

    @rule()
    def cycle(self) -> None:
        self.queue.cycle()
        if self.model:
            self.put(self.model.pop(0))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.model:
            entry = data.draw(st.sampled_from(self.model))
            self.queue.remove(entry[0])
            self.model.remove(entry)

    @invariant()
    def same(self) -> None:
        assert self.queue.list() == [(reply, n) for reply, n, *_ in self.model]

    @invariant()
    def nothing_is_due_before(self) -> None:
        """The deadline may be early, that of a satisfied request, while others wait; it is never late."""
        due = min((each[3] for each in self.model if each[3]), default=0)
        if due:
            assert 0 < self.queue.due <= due
        if not self.model:
            assert self.queue.due == 0


QueueAgainstModel.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
test_queue_against_a_naive_model = QueueAgainstModel.TestCase
