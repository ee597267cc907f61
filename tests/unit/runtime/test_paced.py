"""Work of the event loop that is divided among its rounds."""

import asyncio
from functools import partial

import pytest

from gnats.runtime import paced, steps
from gnats.runtime.paced import Paced
from gnats.runtime.steps import in_slices

pytestmark = pytest.mark.timeout(60)


class Rounds:
    """Counts the rounds of the loop."""

    def __init__(self) -> None:
        self.count = 0
        self._task = asyncio.create_task(self._go())

    async def _go(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._task.cancel()


async def _all_made(made: list[tuple[str, int]], number: int) -> None:
    for _ in range(100):
        if len(made) < number:
            await asyncio.sleep(0)


async def test_groups_take_turns_and_the_loop_has_rounds_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "TURN", 0.0)
    calls, rounds, made = Paced(), Rounds(), list[tuple[str, int]]()
    at = list[int]()

    def note(group: str, number: int) -> None:
        made.append((group, number))
        at.append(rounds.count)

    for number in range(20):
        calls.call("a", partial(note, "a", number))
    for number in range(2):
        calls.call("b", partial(note, "b", number))
    assert not made
    await _all_made(made, 22)
    rounds.stop()
    assert made[:5] == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2)]
    assert made[5:] == [("a", number) for number in range(3, 20)]
    assert len(set(at)) == 22


async def test_a_cancelled_call_is_not_made_and_one_that_fails_holds_up_no_other() -> None:
    calls, made = Paced(), list[tuple[str, int]]()
    failures = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def fail() -> None:
        made.append(("fail", 0))
        raise OverflowError

    cancelled = calls.call("a", lambda: made.append(("cancelled", 0)))
    calls.call("a", fail)
    calls.call("a", lambda: made.append(("last", 0)))
    cancelled.cancel()
    cancelled.cancel()
    await _all_made(made, 2)
    assert made == [("fail", 0), ("last", 0)]
    assert [type(each) for each in failures] == [OverflowError]


async def test_a_call_may_ask_for_another_one() -> None:
    calls, made = Paced(), list[tuple[str, int]]()

    def first() -> None:
        made.append(("first", 0))
        calls.call("a", lambda: made.append(("second", 0)))

    calls.call("a", first)
    await _all_made(made, 2)
    assert made == [("first", 0), ("second", 0)]


async def test_slices_of_a_loop_leave_rounds_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "TURN", 0.0)
    rounds = Rounds()
    seen = [(item, rounds.count) async for item in in_slices(range(10))]
    rounds.stop()
    assert [item for item, _ in seen] == list(range(10))
    assert len({count for _, count in seen}) == 10
