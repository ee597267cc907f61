"""The time of this process, held and moved by a test: of the data plane and of the control plane alike.

Servers under a held clock start after it is held and end before it is let go. They run in the loop that moves
the clock: the test's own, or a ServerThread's (`thread.run(clock.advance(1))`).
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
"""Of the loop, in which it handles what pollers have posted, and what that calls soon."""
PATIENCE = 30.0
"""Seconds of real time that pollers have for what is due."""
MOST_STEPS = 20_000
"""Deadlines on the way of one advance(); jump() passes over them."""


class HeldClock:
    """The process's clock, held from the moment that this is made.

    `realtime`, ns since 1970, is what the time is then; 0: what it is.
    """

    def __init__(self, realtime: int = 0) -> None:
        gc.collect()  # a poller that nobody closed counts as a reader of the clock
        self._settled = hold(realtime)
        self._servers: list[Server] = []
        self._engines: list[Engine] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        forget_deadlines()
        release()

    def watch(self, server: Server, *engines: Engine) -> None:
        """Move this server with the clock; `engines` are those that it does not know of."""
        self._servers.append(server)
        self._engines += engines

    @property
    def now(self) -> int:
        """ns since 1970."""
        return time_ns()

    def set_back(self, seconds: float) -> None:
        """Set the realtime clock back, as an administrator does; timers do not see it."""
        step_realtime(-round(seconds * 1e9))

    def move(self, seconds: float) -> None:
        """Move the time where no server runs."""
        assert not self._servers
        move(round(seconds * 1e9))

    async def advance(self, seconds: float) -> None:
        """Let time pass, from deadline to deadline; return when what became due on the way has been done."""
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
        """Let time pass at once, as for a machine that was suspended; return when what was due is done."""
        move(max(round(seconds * 1e9), 0))
        await self.settle()

    async def settle(self) -> None:
        """Return when nothing is left that is due now, and nothing that it caused."""
        work: list[object] = []
        while (done := await self._go_round()) != work or any(map(self._pending, self._servers)):
            work = done

    # -- parts -----------------------------------------------------------------------------------------------

    def _pollers(self) -> Iterator[Poller]:
        for server in self._servers:
            if server.pollers:
                yield from server.pollers.all

    def _running_engines(self) -> Iterator[Engine]:
        for server in self._servers:
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
        """Have everybody look at the clock once, and wait for them; numbers that grow with what they do."""
        target = monotonic_ns()
        fired = fire_due()
        for engine in self._running_engines():
            engine.clock_moved()
        pollers = list(self._pollers())
        told = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            with suppress(BlockingIOError):  # the loop had noted a write that has been read already
                os.eventfd_read(self._settled)
            told.set()

        loop.add_reader(self._settled, hear)
        try:
            for poller in pollers:
                poller.wake()
            async with asyncio.timeout(PATIENCE):
                while any(self._behind(poller, target) for poller in pollers):
                    await told.wait()
                    told.clear()
        finally:
            loop.remove_reader(self._settled)
        # What the pollers have posted is handled, and what that calls soon.
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        return [fired, *map(self._work_of, pollers), *map(self._work_of_engine, self._running_engines())]

    @staticmethod
    def _pending(server: Server) -> int:
        return server.pollers.pending_events if server.pollers else 0

    @staticmethod
    def _behind(poller: Poller, target: int) -> bool:
        settled = poller.state_now()["settled"]
        assert isinstance(settled, int)
        return poller.fileno() >= 0 and settled < target

    @staticmethod
    def _work_of(poller: Poller) -> tuple[object, ...]:
        stats = poller.stats()
        return stats["in_msgs"], stats["out_msgs"], stats["clients"], poller.state_now()["timers"]

    @staticmethod
    def _work_of_engine(engine: Engine) -> tuple[int, ...]:
        stats = engine.stats()
        return stats["rounds"], stats["timers"], stats["syncs"]
