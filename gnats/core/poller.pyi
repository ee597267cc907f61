"""Pollers: one epoll set with its connections each (see docs/architecture.md)."""

from gnats.core.net.pollstate import PollerBase
from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.state import ServerState

class Poller(PollerBase):
    def __init__(self, index: int, inbox: Inbox, state: ServerState, *, solo: bool = False) -> None:
        """`index` is unique in the server and below 64.

        `solo` promises that no other thread moves messages on this server, which saves atomic operations.
        Raises ValueError for an index too large, OSError when a descriptor cannot be made, MemoryError.
        """
    def fileno(self) -> int:
        """The epoll descriptor: readable when run_once has something to do."""
    def run_once(self, timeout_ms: int = 0) -> int:
        """Read, parse, route and flush all that is ready, without the GIL. Return the number of events.

        Wait `timeout_ms` for the first event; -1: without limit. Return -errno when epoll fails.
        """
    def run(self) -> None:
        """Do rounds until stop(), in a thread of its own, without the GIL. Raises OSError if epoll fails."""
    def stop(self) -> None:
        """Make run() return. Any thread."""
    def hurry(self) -> None:
        """Remove all subscriptions of a closed connection in one batch from now on: the server stops.

        Any thread.
        """
    def wake(self) -> None:
        """Have run() or run_once() do a round; stats()["wakeups"] counts it. Any thread, before close()."""
    def close(self) -> None:
        """Release descriptors and memory. run() must have returned, and all connections must be closed."""
    def stats(self) -> dict[str, int]:
        """Return counters since the start and the number of clients, each read by itself.

        Messages and bytes in and out, clients, wakeups, reads, the use of the result cache. `lingered`: times
        that an event came while the poller polled before going to sleep.
        """
    def state_now(self) -> dict[str, int | list[int]]:
        """Return the poller's present state. A hint only: it may be running.

        `timers`: armed timers; `deadline`: the first one's, monotonic ns, 0 for none; `overdue`: ns since
        then; `unwatched`: whether the deadline would pass unnoticed; `free_chunks`: by size class; `settled`:
        under a held clock, the time of the last round after which nothing due was left.
        """
