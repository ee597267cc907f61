"""The pollers of a server: the threads that run them, and the inbox through which they speak to the loop."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from os import sched_getaffinity

from gnats.clock import Timer, call_later
from gnats.core.client import Client
from gnats.core.poller import Poller
from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.state import ServerState
from gnats.log.logger import Logger

JOIN_TIMEOUT = 5.0
"""Seconds a poller's thread has to end when the server stops."""

TURN = 0.001
"""Seconds of one turn of the events; then others of the loop have theirs."""
SLICE = 8
"""Events that are taken out of the inbox at once."""
DROPS_TOLD = 1.0
"""Seconds between two lines about events that were dropped."""

Event = tuple[int, Client | None, int, int, object]


def io_threads(wanted: int | str) -> int:
    """The number of threads that serve connections.

    "auto" is none on one core, where a thread would only add switches, and else one: measured (perf/results),
    both cost the same CPU a message, a thread has the lower latency, and no slow callback delays it.
    """
    if isinstance(wanted, int):
        return wanted
    return 1 if len(sched_getaffinity(0)) > 1 else 0


class Pollers:
    """Runs the pollers and hands what they post to `handle`, in the loop's thread.

    Connections take turns; what each has posted comes in order.

    `handle` returns True when it has let a parked connection go on. `internal` is the poller that runs in the
    loop; it serves the server's own clients, and with no threads everyone.
    """

    def __init__(
        self, state: ServerState, threads: int, handle: Callable[[Event], bool], log: Logger
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle = handle
        self._log = log
        self._events: deque[Event] = deque()
        self._inbox = Inbox()
        self.internal = Poller(0, self._inbox, state, solo=threads == 0)
        self._threaded = [Poller(index + 1, self._inbox, state) for index in range(threads)]
        self._threads = [
            threading.Thread(target=poller.run, name=f"gnats-io-{index}", daemon=True)
            for index, poller in enumerate(self._threaded)
        ]
        self._next = 0
        self._dropped = 0
        self._telling: Timer | None = None
        self._next_turn: asyncio.Handle | None = None
        self._loop.add_reader(self._inbox.fileno(), self._drain)
        self._loop.add_reader(self.internal.fileno(), self._run_internal)
        for thread in self._threads:
            thread.start()

    def choose(self) -> Poller:
        """The poller for the next connection: each in turn."""
        if not self._threaded:
            return self.internal
        self._next = (self._next + 1) % len(self._threaded)
        return self._threaded[self._next]

    @property
    def threads(self) -> int:
        """Threads that serve connections."""
        return len(self._threads)

    @property
    def native_ids(self) -> list[int]:
        """What the kernel calls these threads."""
        return [thread.native_id for thread in self._threads if thread.native_id is not None]

    @property
    def pending_events(self) -> int:
        """What the pollers have posted and nobody has looked at yet."""
        return len(self._inbox) + len(self._events)

    def stats(self) -> dict[str, int]:
        """Every poller's counters, added up."""
        total: dict[str, int] = {}
        for poller in self.all:
            for name, value in poller.stats().items():
                total[name] = total.get(name, 0) + value
        return total

    @property
    def all(self) -> tuple[Poller, ...]:
        """The internal one first."""
        return (self.internal, *self._threaded)

    def _run_internal(self) -> None:
        self.internal.run_once(0)
        if len(self._inbox):
            self._drain()

    def _drain(self) -> None:
        if self._next_turn is None:  # else what came waits for it: one turn in each round of the loop
            self._take_turn()

    def _go_on(self) -> None:
        self._next_turn = None
        self._take_turn()

    def _take_turn(self) -> None:
        events, inbox = self._events, self._inbox
        resumed = False
        until = time.monotonic() + TURN
        try:
            while True:
                if not events:
                    # First of all even where nothing waits: a poller may say that it has posted something
                    # when that has been taken already, and the inbox is readable until it is drained.
                    events.extend(inbox.drain(SLICE))
                if events:
                    resumed |= self._handle(events.popleft())
                if not (events or len(inbox)) or time.monotonic() >= until:
                    break
        finally:
            # Others of the loop have their turn; where a handler has failed, the events behind it go on, too.
            if (events or len(inbox)) and self._next_turn is None:
                self._next_turn = self._loop.call_soon(self._go_on)
        if resumed and not self._threaded:
            # What is behind a CONNECT in the connection's buffer need not wait for the loop to come round.
            self.internal.run_once(0)
        if inbox.dropped != self._dropped and self._telling is None:
            self._telling = call_later(DROPS_TOLD, self._tell_dropped)

    def _tell_dropped(self) -> None:
        self._telling = None
        before, self._dropped = self._dropped, self._inbox.dropped
        self._log.warn(f"Dropped {self._dropped - before} internal events: more came than could be handled")

    def hurry(self) -> None:
        """Nobody needs to be served any more: see Poller.hurry()."""
        for poller in self.all:
            poller.hurry()

    def inbox_stats(self) -> dict[str, int]:
        """See Inbox.stats()."""
        return self._inbox.stats()

    def stop(self, *, close: bool, before: Callable[[], None] | None = None) -> None:
        """End the threads; with `close`, which needs every connection to be closed, release everything.

        `before` is called when the threads have ended.
        """
        for poller in self._threaded:
            poller.stop()
        for thread in self._threads:
            thread.join(JOIN_TIMEOUT)
        running = [thread.name for thread in self._threads if thread.is_alive()]
        if running:
            self._log.error(f"I/O threads still running: {', '.join(running)}")
        self._loop.remove_reader(self.internal.fileno())
        self._loop.remove_reader(self._inbox.fileno())
        while len(self._inbox) or self._events:
            self._take_turn()
        if self._next_turn:
            self._next_turn.cancel()
        if self._telling:
            self._telling.cancel()
            self._tell_dropped()
        if before and not running:
            before()
        if close and not running:
            for poller in self.all:
                poller.close()
            self._inbox.close()
