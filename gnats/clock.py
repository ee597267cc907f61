"""The server's time for the control plane: reading it, and waiting.

This is the data plane's clock (gnats.core.runtime.clock), which a test can hold and move. All times that a
server shows, stores or waits for come from here. Code that measures work (a turn of the loop, the duration of
a start) reads `time.monotonic`.

asyncio is imported at the first wait: programs that only read a configuration need not load it.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from gnats.core.runtime.clock import is_held
from gnats.core.runtime.clock import read_monotonic as monotonic_ns
from gnats.core.runtime.clock import read_realtime as time_ns
from gnats.go.text import SECOND

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "Timer",
    "call_later",
    "monotonic",
    "monotonic_ns",
    "seconds_until",
    "sleep",
    "time_ns",
    "timeout",
    "unix_time",
]


class Timer(Protocol):
    """A call that is due later, unless it is cancelled."""

    def when(self) -> float:
        """Return the deadline in seconds of the loop's or the held clock; for seconds_until() only."""

    def cancel(self) -> None: ...


def unix_time() -> float:
    """Return the unix time in seconds."""
    return time_ns() / SECOND


def monotonic() -> float:
    """Return the seconds of a clock that never goes back."""
    return monotonic_ns() / SECOND


def call_later(seconds: float, callback: Callable[..., object], *args: Any) -> Timer:
    """Make the running loop call `callback(*args)` after `seconds`."""
    import asyncio

    loop = asyncio.get_running_loop()
    if is_held():
        return _HeldTimer(loop, monotonic_ns() + max(round(seconds * SECOND), 0), callback, args)
    return loop.call_later(seconds, callback, *args)


def seconds_until(timer: Timer) -> float:
    """Return the seconds until a timer of the running loop is due."""
    import asyncio

    return timer.when() - (monotonic() if is_held() else asyncio.get_running_loop().time())


async def sleep(seconds: float) -> None:
    """Wait for `seconds`, 0 or more."""
    import asyncio

    if not is_held():
        await asyncio.sleep(seconds)
        return
    passed = asyncio.get_running_loop().create_future()
    timer = call_later(seconds, passed.set_result, None)
    try:
        await passed
    finally:
        timer.cancel()


@asynccontextmanager
async def timeout(seconds: float) -> AsyncIterator[None]:
    """Cancel the body after `seconds`, and raise TimeoutError."""
    import asyncio

    if not is_held():
        async with asyncio.timeout(seconds):
            yield
        return
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = call_later(seconds, lambda: scope.reschedule(loop.time()))
        try:
            yield
        finally:
            timer.cancel()


# -- a held clock ----------------------------------------------------------------------------------------


class _HeldTimer:
    """A call that is due when a test has moved the held clock to `when` (monotonic ns)."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        when: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
    ) -> None:
        self._loop = loop
        self._callback = callback
        self._args = args
        self._when = when
        self.cancelled = False
        heapq.heappush(_waiting, (when, next(_order), self))

    def when(self) -> float:
        return self._when / SECOND

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        """Make the loop call it in its next round, unless it is cancelled before."""
        self._loop.call_soon(self._call)

    def _call(self) -> None:
        if not self.cancelled:
            self._callback(*self._args)


_waiting: list[tuple[int, int, _HeldTimer]] = []
_order = count()


def first_deadline() -> int:
    """Return the first deadline under a held clock (monotonic ns); 0 if there is none."""
    while _waiting and _waiting[0][2].cancelled:
        heapq.heappop(_waiting)
    return _waiting[0][0] if _waiting else 0


def fire_due() -> int:
    """Make the loop call all that is due at the held time, in its next round. Return the number of calls.

    Call it in the thread of the servers' loop.
    """
    now, fired = monotonic_ns(), 0
    while (when := first_deadline()) and when <= now:
        heapq.heappop(_waiting)[2].fire()
        fired += 1
    return fired


def forget_deadlines() -> None:
    """Drop all deadlines of the held clock: a test releases the clock when its servers have ended."""
    _waiting.clear()
