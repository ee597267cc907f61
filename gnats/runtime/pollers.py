"""The pollers of a server: their threads, and the events that they post to the loop through the inbox."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from os import sched_getaffinity

from gnats.clock import Timer, call_later
from gnats.core.net.connection import Connection
from gnats.core.poller import Poller
from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.state import ServerState
from gnats.log.logger import Logger

JOIN_TIMEOUT = 5.0
"""Seconds that a poller's thread has to end when the server stops."""

TURN = 0.001
"""Seconds for which events are handled before the loop does its other work."""
SLICE = 8
"""Events taken out of the inbox in one call."""
DROPS_TOLD = 1.0
"""Seconds between two log lines about dropped events."""

Event = tuple[int, Connection | None, int, int, object]


def io_threads(wanted: int | str) -> int:
    """Return the number of threads that serve connections.

    "auto" means 0 on one core, where a thread would only add context switches, else 1. As measured
    (perf/results), both cost the same CPU per message; a thread has the lower latency, and no slow callback
    of the loop delays it.
    """
    if isinstance(wanted, int):
        return wanted
    return 1 if len(sched_getaffinity(0)) > 1 else 0


class Pollers:
    """Runs the pollers and calls `handle` with each event that they post, in the loop's thread.

    Connections take turns; the events of one connection come in order. `handle` returns True when it may have
    resumed a connection, which waits after its CONNECT or INFO. `internal` is the poller that runs in the
    loop: it serves the server's own clients, and without threads all connections.
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
        """Return the poller for the next connection: each poller in turn."""
        if not self._threaded:
            return self.internal
        self._next = (self._next + 1) % len(self._threaded)
        return self._threaded[self._next]

    @property
    def serving(self) -> tuple[Poller, ...]:
        """The pollers that serve connections: those with threads, or without threads the internal one."""
        return tuple(self._threaded) or (self.internal,)

    @property
    def threads(self) -> int:
        """The number of threads that serve connections."""
        return len(self._threads)

    @property
    def native_ids(self) -> list[int]:
        """The kernel's ids of these threads."""
        return [thread.native_id for thread in self._threads if thread.native_id is not None]

    @property
    def pending_events(self) -> int:
        """The number of events that were posted and not handled yet."""
        return len(self._inbox) + len(self._events)

    def stats(self) -> dict[str, int]:
        """Return the sums of all pollers' counters."""
        total: dict[str, int] = {}
        for poller in self.all:
            for name, value in poller.stats().items():
                total[name] = total.get(name, 0) + value
        return total

    @property
    def all(self) -> tuple[Poller, ...]:
        """All pollers, the internal one first."""
        return (self.internal, *self._threaded)

    def _run_internal(self) -> None:
        self.internal.run_once(0)
        if len(self._inbox):
            self._drain()

    def _drain(self) -> None:
        if self._next_turn is None:  # otherwise the events wait for that turn: one in each round of the loop
            self._take_turn()

    def _go_on(self) -> None:
        self._next_turn = None
        self._take_turn()

    def _take_turn(self) -> None:
        """Handle events for TURN seconds; the rest waits for the next round of the loop."""
        events, inbox = self._events, self._inbox
        resumed = False
        until = time.monotonic() + TURN
        try:
            while True:
                if not events:
                    # Drain even when the inbox looks empty: a poller may signal an event that was drained
                    # already, and the inbox stays readable until it is drained again.
                    events.extend(inbox.drain(SLICE))
                if events:
                    resumed |= self._handle(events.popleft())
                if not (events or len(inbox)) or time.monotonic() >= until:
                    break
        finally:
            # The rest waits for the next round of the loop, also when a handler has raised.
            if (events or len(inbox)) and self._next_turn is None:
                self._next_turn = self._loop.call_soon(self._go_on)
        if resumed and not self._threaded:
            # Parse the input behind a CONNECT now instead of in the next round of the loop.
            self.internal.run_once(0)
        if inbox.dropped != self._dropped and self._telling is None:
            self._telling = call_later(DROPS_TOLD, self._tell_dropped)

    def _tell_dropped(self) -> None:
        self._telling = None
        before, self._dropped = self._dropped, self._inbox.dropped
        self._log.warn(f"Dropped {self._dropped - before} internal events: more came than could be handled")

    def hurry(self) -> None:
        """Tell all pollers that the server stops (Poller.hurry)."""
        for poller in self.all:
            poller.hurry()

    def inbox_stats(self) -> dict[str, int]:
        """Return Inbox.stats()."""
        return self._inbox.stats()

    def stop(self, *, close: bool, before: Callable[[], None] | None = None) -> None:
        """End the threads and handle the events that wait; then call `before`.

        With `close`, release the pollers and the inbox; all connections must be closed. Neither happens while
        a thread still runs after JOIN_TIMEOUT.
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
