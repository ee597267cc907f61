"""Timers beside a naive list, and sums of times that cannot wrap around."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gnats.core.runtime.timers import TimersProbe, probe_duration, probe_times
from gnats.go.text import SECOND

pytestmark = pytest.mark.timeout(120)

LEAST, MOST = -(2**63), 2**63 - 1
INT64 = st.integers(LEAST, MOST)
YEAR_2262 = 292 * 365 * 24 * 3600 * SECOND
ROOM = 300
TIMER = st.integers(0, 20)
# A few times, so that many are equal, and the ends of the range.
WHEN = st.integers(0, 60) | st.sampled_from([YEAR_2262, YEAR_2262 + 1, MOST - 1, MOST, -1, LEAST])


class TimersAgainstModel(RuleBasedStateMachine):
    """The model is a dictionary from timers to due times; `turn` is the time of the last expire()."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = TimersProbe(ROOM)
        self.model: dict[int, int] = {}
        self.last_round = 0

    def put(self, timer: int, when: int) -> None:
        self.timers.set(timer, when)
        self.model[timer] = max(when, self.last_round + 1)

    @rule(timer=TIMER, when=WHEN)
    def set(self, timer: int, when: int) -> None:
        """Set a new timer, or move one."""
        self.put(timer, when)

    @rule(timer=TIMER, later=st.integers(-20, 20))
    def move(self, timer: int, later: int) -> None:
        if timer in self.model:
            self.put(timer, min(max(self.model[timer] + later, LEAST), MOST))

    @rule(timer=TIMER)
    def cancel(self, timer: int) -> None:
        self.timers.clear(timer)
        self.model.pop(timer, None)

    @rule(n=st.integers(1, ROOM - 21), when=WHEN, step=st.sampled_from([0, 1, SECOND]))
    def many(self, n: int, when: int, step: int) -> None:
        for timer in range(21, 21 + n):
            self.put(timer, min(when + (timer * 7919 % n) * step, MOST))

    @rule(n=st.integers(1, ROOM - 21))
    def cancel_many(self, n: int) -> None:
        for timer in range(21, 21 + n):
            self.cancel(timer)

    @rule(more=st.integers(0, 40), again=st.booleans())
    def expire(self, more: int, again: bool) -> None:
        """Due timers fire in order, each once, even when each is set again for now during the round."""
        now = self.last_round + more
        self.last_round = now
        due = sorted((when, timer) for timer, when in self.model.items() if when <= now)
        came = []
        while (timer := self.timers.expired(now)) is not None:
            came.append((self.model.pop(timer), timer))
            if again:
                self.put(timer, LEAST)
        assert sorted(came) == due
        assert [when for when, _ in came] == [when for when, _ in due]

    @invariant()
    def same(self) -> None:
        assert len(self.timers) == len(self.model)
        assert self.timers.next == min(self.model.values(), default=0)


TimersAgainstModel.TestCase.settings = settings(max_examples=150, stateful_step_count=60)
test_timers_against_a_naive_model = TimersAgainstModel.TestCase


def test_one_that_is_always_due_keeps_no_other_from_its_turn() -> None:
    timers = TimersProbe(3)
    timers.set(0, 1)
    timers.set(1, 50)
    timers.set(2, MOST)
    came = []
    for now in range(10, 100, 10):
        while (timer := timers.expired(now)) is not None:
            came.append((now, timer))
            if timer == 0:
                timers.set(0, 1)
    assert came == [(now, 0) for now in range(10, 50, 10)] + [(50, 0), (50, 1)] + [
        (now, 0) for now in range(60, 100, 10)
    ]
    assert timers.next == 91


def test_what_was_reserved_can_be_set_without_memory() -> None:
    timers = TimersProbe(ROOM)
    for n in range(1, ROOM + 1):
        timers.reserve(1)
        assert timers.capacity >= n
    room = timers.capacity
    for i in range(ROOM):
        timers.set(i, MOST - i)
    assert timers.capacity == room
    timers.reserve(-ROOM)
    timers.reserve(room)
    assert timers.capacity == room


@given(INT64, INT64)
@settings(max_examples=500)
def test_sums_of_times_end_at_the_ends(t: int, d: int) -> None:
    after, before, seconds = probe_times(t, d)
    for found, exact in ((after, t + d), (before, t - d), (seconds, t * SECOND)):
        assert found == min(max(exact, LEAST), MOST)


@given(st.floats())
def test_durations_of_any_number_of_seconds(secs: float) -> None:
    found = probe_duration(secs)
    if math.isnan(secs):
        assert found == 0
    elif abs(secs) < 9.2e9:
        assert found == int(secs * 1e9)
    else:
        assert abs(found) >= 9.19e18 and (found > 0) is (secs > 0)
