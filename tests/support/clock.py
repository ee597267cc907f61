"""Hold and move the clock of this process, for the data plane and the control plane alike.

Start servers after the clock is held, and stop them before it is released. They must run in the event loop
that moves the clock: the test's own, or a ServerThread's (`thread.run(clock.advance(1))`).
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from gnats.clock import fire_due, first_deadline, forget_deadlines, monotonic_ns, time_ns
from gnats.core.runtime.clock import hold, move, release, step_realtime

if TYPE_CHECKING:
    from gnats import Server
    from gnats.core.poller import Poller
    from gnats.jetstream.engine.engine import Engine

ROUNDS = 4
"""Rounds of the event loop that handle the pollers' events and the callbacks that these schedule."""
PATIENCE = 30.0
"""Seconds of real time that pollers have to do everything due."""
MOST_STEPS = 20_000
"""Deadlines that one advance() may pass, one by one; jump() passes any number at once."""
MACHINE_STARTED = 1_000_000_000
"""ns since the machine's start at which the clock is held. Small: code that takes 0 for "long ago" shows."""


class HeldClock:
    """The process's clock, held from construction until the end of the `with` block.

    `realtime` is the time to start at, in ns since 1970; 0 starts at the present.
    """

    def __init__(self, realtime: int = 0) -> None:
        gc.collect()  # a leaked poller, not yet collected, counts as a reader of the clock
        self._settled = hold(realtime, MACHINE_STARTED)
        self.servers: list[Server] = []
        self._engines: list[Engine] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        forget_deadlines()
        release()

    def watch(self, server: Server, *engines: Engine) -> None:
        """Have advance(), jump() and settle() wait for this server, and for engines made outside it."""
        self.servers.append(server)
        self._engines += engines

    @property
    def now(self) -> int:
        """The held time in ns since 1970."""
        return time_ns()

    def set_back(self, seconds: float) -> None:
        """Set the realtime clock back, as an administrator does; the monotonic clock does not move."""
        step_realtime(-round(seconds * 1e9))

    def move(self, seconds: float) -> None:
        """Move the time without waiting for anything; no server may be watched."""
        assert not self.servers
        move(round(seconds * 1e9))

    async def advance(self, seconds: float) -> None:
        """Let time pass from deadline to deadline; return when everything due on the way is done.

        Raises AssertionError for more than MOST_STEPS deadlines, TimeoutError when a poller does not settle.
        """
        await self.settle()
        end = monotonic_ns() + round(seconds * 1e9)
        for _ in range(MOST_STEPS):
            following = min((when for when in self._deadlines() if when), default=end)
            if following >= end:
                break
            move(max(following - monotonic_ns(), 0))
            await self.settle()
        else:
            raise AssertionError(f"more than {MOST_STEPS} deadlines in {seconds} s")
        await self.jump((end - monotonic_ns()) / 1e9)

    async def jump(self, seconds: float) -> None:
        """Let time pass in one step, as while a machine is suspended; return when everything due is done."""
        move(max(round(seconds * 1e9), 0))
        await self.settle()

    async def settle(self) -> None:
        """Return when everything due now is done, and everything that this caused."""
        work: list[object] = []
        while (done := await self._go_round()) != work or any(map(self._pending, self.servers)):
            work = done

    # -- parts -----------------------------------------------------------------------------------------------

    def _pollers(self) -> Iterator[Poller]:
        for server in self.servers:
            if server.pollers:
                yield from server.pollers.all

    def _running_engines(self) -> Iterator[Engine]:
        for server in self.servers:
            if server.pollers and server.js_engine:
                yield server.js_engine
        yield from self._engines

    def _deadlines(self) -> Iterator[int]:
        yield first_deadline()
        for poller in self._pollers():
            deadline = poller.state_now()["deadline"]
            assert isinstance(deadline, int)
            yield deadline
        for engine in self._running_engines():
            yield engine.stats()["deadline"]

    async def _go_round(self) -> list[object]:
        """Have loop, pollers and engines look at the clock once; return counts that grow with their work."""
        target = monotonic_ns()
        fired = fire_due()
        for engine in self._running_engines():
            engine.clock_moved()
        pollers = list(self._pollers())
        told = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            with suppress(BlockingIOError):  # an earlier call has read the write that the loop reports
                os.eventfd_read(self._settled)
            told.set()

        loop.add_reader(self._settled, hear)
        try:
            async with asyncio.timeout(PATIENCE):
                for _ in range(2):  # when the second round begins, all that waited for the first is done
                    before = {poller: self._rounds(poller) for poller in pollers}
                    while late := [each for each in pollers if self._behind(each, target, before[each])]:
                        for poller in late:
                            poller.wake()  # again, if it read the last wake in a round that had begun
                        await told.wait()
                        told.clear()
        finally:
            loop.remove_reader(self._settled)
        # Let the loop handle the pollers' events and the callbacks that these schedule.
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        return [fired, *map(self._work_of, pollers), *map(self._work_of_engine, self._running_engines())]

    @staticmethod
    def _pending(server: Server) -> int:
        return server.pollers.pending_events if server.pollers else 0

    @staticmethod
    def _rounds(poller: Poller) -> int:
        return poller.stats()["wakeups"]

    @classmethod
    def _behind(cls, poller: Poller, target: int, rounds: int) -> bool:
        settled = poller.state_now()["settled"]
        assert isinstance(settled, int)
        return poller.fileno() >= 0 and (settled < target or cls._rounds(poller) <= rounds)

    @staticmethod
    def _work_of(poller: Poller) -> tuple[object, ...]:
        stats = poller.stats()
        return stats["in_msgs"], stats["out_msgs"], stats["clients"], poller.state_now()["timers"]

    @staticmethod
    def _work_of_engine(engine: Engine) -> tuple[int, ...]:
        stats = engine.stats()
        return stats["rounds"], stats["timers"], stats["syncs"]
