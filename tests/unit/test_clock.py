"""The process's clock: hold, move and release it; no module waits by another clock."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from support.clock import HeldClock

import gnats
from gnats import clock as the_clock
from gnats.clock import call_later, monotonic_ns, seconds_until, sleep, time_ns, timeout, unix_time
from gnats.core.poller import Poller
from gnats.core.runtime.clock import hold, is_held, move, release
from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.state import ServerState

pytestmark = pytest.mark.timeout(60)

SOURCES = Path(gnats.__file__).parent
WAITS = re.compile(
    r"\.call_(?:later|at)\(|asyncio\.(?:timeout|wait_for)\(|asyncio\.sleep\((?!0\))|\btime\.time(?:_ns)?\("
    r"|\bdatetime\.(?:now|utcnow)\("
)
REAL = {
    "clock.py",
    "rest.py",  # measures real time
    "server_thread.py",
    "systemd.py",  # the service manager's time
    "errors.py",  # of TLS: OpenSSL compares certificates with the real time
}
"""Modules that may wait with the kernel's clock, beside the jobs of gnats.archive."""


def test_it_runs_as_the_kernels_do() -> None:
    assert not is_held()
    assert time.monotonic_ns() <= monotonic_ns() <= time.monotonic_ns()
    assert time.time_ns() <= time_ns() <= time.time_ns()
    assert abs(unix_time() - time.time()) < 10


def test_a_held_clock_stands_and_is_moved() -> None:
    with HeldClock(realtime=10**18) as clock:
        begun = monotonic_ns()
        assert time_ns() == 10**18
        assert monotonic_ns() == begun
        clock.move(1.5)
        assert monotonic_ns() - begun == time_ns() - 10**18 == 1_500_000_000
        clock.set_back(3600)
        assert time_ns() == 10**18 + 1_500_000_000 - 3600 * 10**9
        assert monotonic_ns() - begun == 1_500_000_000
    assert abs(unix_time() - time.time()) < 10


def test_it_is_held_once_and_does_not_go_back() -> None:
    with pytest.raises(RuntimeError, match="not held"):
        move(1)
    with pytest.raises(RuntimeError, match="not held"):
        release()
    with HeldClock():
        with pytest.raises(RuntimeError, match="held"):
            hold()
        with pytest.raises(ValueError, match="back"):
            move(-1)


def test_it_is_neither_held_nor_let_go_while_a_poller_reads_it() -> None:
    inbox = Inbox()
    poller = Poller(0, inbox, ServerState())
    with pytest.raises(RuntimeError, match="1 pollers"):
        hold()
    poller.close()
    with HeldClock():
        poller = Poller(0, inbox, ServerState())
        with pytest.raises(RuntimeError, match="1 pollers"):
            release()
        poller.close()
        poller.close()
    inbox.close()


async def test_calls_are_due_in_order_and_may_be_cancelled(clock: HeldClock) -> None:
    called: list[int] = []
    for seconds in (3, 1, 2, 1):
        call_later(seconds, called.append, seconds)
    cancelled = call_later(2.5, called.append, 0)
    call_later(0, called.append, 0)
    assert seconds_until(cancelled) == pytest.approx(2.5)
    await clock.advance(0)
    assert called == [0]
    await clock.advance(2)
    assert called == [0, 1, 1, 2]
    cancelled.cancel()
    await clock.advance(60)
    assert called == [0, 1, 1, 2, 3]


async def test_a_call_that_is_due_with_the_one_that_cancels_it(clock: HeldClock) -> None:
    called: list[str] = []
    timers = []
    call_later(1, lambda: timers[0].cancel())
    timers.append(call_later(1, called.append, "x"))
    await clock.advance(1)
    assert called == []


async def test_each_step_is_at_its_own_time(clock: HeldClock) -> None:
    begun, times = monotonic_ns(), []

    def tick() -> None:
        times.append(monotonic_ns() - begun)
        call_later(10, tick)

    call_later(10, tick)
    await clock.advance(35)
    assert times == [10 * 10**9, 20 * 10**9, 30 * 10**9]
    await clock.jump(100)
    assert times[3:] == [135 * 10**9]


async def test_sleep_and_timeout(clock: HeldClock) -> None:
    async def late() -> str:
        try:
            async with timeout(5):
                await sleep(10)
        except TimeoutError:
            return "late"
        return "in time"

    async def early() -> str:
        async with timeout(5):
            await sleep(4.999)
        return "in time"

    tasks = [asyncio.create_task(late()), asyncio.create_task(early()), asyncio.create_task(sleep(6))]
    await clock.advance(4.998)
    assert not any(task.done() for task in tasks)
    await clock.advance(0.001)
    assert [task.done() for task in tasks] == [False, True, False]
    await clock.advance(0.001)
    assert await asyncio.gather(*tasks[:2]) == ["late", "in time"]
    tasks[2].cancel()
    await asyncio.wait(tasks)
    assert the_clock.first_deadline() == 0  # no deadline is left


async def test_a_timeout_that_is_cancelled_from_outside(clock: HeldClock) -> None:
    async def wait() -> None:
        async with timeout(5):
            await sleep(10)

    task = asyncio.create_task(wait())
    await clock.advance(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert the_clock.first_deadline() == 0


async def test_they_wait_in_real_time_where_nobody_holds_the_clock() -> None:
    begun = time.monotonic()
    await sleep(0.02)
    with pytest.raises(TimeoutError):
        async with timeout(0.02):
            await asyncio.get_running_loop().create_future()
    called = asyncio.Event()
    timer = call_later(0.02, called.set)
    assert 0 < seconds_until(timer) <= 0.03
    await called.wait()
    assert time.monotonic() - begun > 0.055


def test_nothing_waits_with_another_clock() -> None:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES)
        if name.parts[0] == "archive" or name.name in REAL:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if WAITS.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []
