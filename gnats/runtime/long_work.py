"""Long work for clients' requests in the control plane, in steps; the loop does other work in between."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Container, Coroutine
from typing import TYPE_CHECKING, Any

from gnats.log.logger import Logger
from gnats.runtime.pollers import TURN

if TYPE_CHECKING:
    from gnats.runtime.steps import Steps

MOST_WAITING = 1024
"""Pieces of work that may wait. Beyond it, the account on a connection with the most loses its latest."""


class LongWork:
    """Does long work in slices of TURN seconds. Connections, and accounts behind one, take turns.

    The pieces of work of one account on one connection are done in order.
    Work for a closed connection is dropped: `connections` contains the ids of the open ones. `spawn` starts a
    task that is cancelled when the server stops. Used in the loop's thread.
    """

    def __init__(
        self,
        connections: Container[int],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        log: Logger,
    ) -> None:
        self._connections = connections
        self._spawn = spawn
        self._log = log
        self._waiting: dict[tuple[int, bytes], deque[Steps[None]]] = {}
        self._count = 0
        self._task: asyncio.Task[None] | None = None

    def begin(self, cid: int, account: bytes, work: "Steps[None]") -> None:
        """Begin work for an account's client, with one slice at once if none of its work waits.

        `cid` is the id of its connection, which may be that of a link. Later slices do the rest.
        """
        causer = cid, account
        if causer not in self._waiting and _is_done(work, time.monotonic() + TURN):
            return
        self._waiting.setdefault(causer, deque()).append(work)
        self._count += 1
        if self._count > MOST_WAITING:
            crowded = max(self._waiting, key=lambda each: len(self._waiting[each]))
            self._waiting[crowded].pop()
            self._removed(crowded)
            log = self._log
            if log.allow(text := "Dropped requests to the system account: too many wait for long answers"):
                log.warn(text)
        if self._task is None:
            self._start()

    def _start(self) -> None:
        self._task = self._spawn(self._work())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if exc := task.exception():
            self._log.error(f"A request to the system account failed: {exc!r:.500}")
        if self._waiting:
            self._start()

    async def _work(self) -> None:
        """Give each causer one slice, in rounds of the loop, until no work is left."""
        while self._waiting:
            await asyncio.sleep(0)
            causer = next(iter(self._waiting))
            works = self._waiting.pop(causer)
            self._waiting[causer] = works  # at the end: the others come first
            if causer[0] not in self._connections:
                self._count -= len(works)
                del self._waiting[causer]
                continue
            until = time.monotonic() + TURN
            done = True
            while done and works and time.monotonic() < until:
                work = works.popleft()
                try:
                    done = _is_done(work, until)
                finally:  # work that raises has ended
                    if done:
                        self._removed(causer)
                    else:
                        works.appendleft(work)

    def _removed(self, causer: tuple[int, bytes]) -> None:
        self._count -= 1
        if not self._waiting[causer]:
            del self._waiting[causer]


def _is_done(work: "Steps[None]", until: float) -> bool:
    """Continue work until a time of time.monotonic(). Return True when it has ended."""
    while True:
        try:
            next(work)
        except StopIteration:
            return True
        if time.monotonic() >= until:
            return False
