"""Pollers: one epoll set with its connections each (see docs/architecture.md)."""

from gnats.core.net.pollstate import PollerBase
from gnats.core.runtime.inbox import Inbox
from gnats.core.runtime.state import ServerState

class Poller(PollerBase):
    def __init__(self, index: int, inbox: Inbox, state: ServerState, *, solo: bool = False) -> None:
        """`index` is below 64 and its own within the server.

        `solo` promises that no other thread moves messages on this server. Raises OSError when a descriptor
        cannot be had, MemoryError.
        """
    def fileno(self) -> int:
        """The epoll descriptor: readable when run_once has something to do."""
    def run_once(self, timeout_ms: int = 0) -> int:
        """Read, parse, route and flush everything that is ready, without the GIL; the number of events."""
    def run(self) -> None:
        """run_once until stop(), for a thread of its own; never takes the GIL in between."""
    def stop(self) -> None:
        """Make run() return. Any thread."""
    def hurry(self) -> None:
        """From now on remove all subscriptions of a closed connection in one batch: nobody waits.

        Any thread.
        """
    def wake(self) -> None:
        """Have run() or run_once() go round once, which stats()["wakeups"] counts.

        Any thread; not after close().
        """
    def close(self) -> None:
        """Release descriptors and memory: all its connections are closed, and run() has returned."""
    def stats(self) -> dict[str, int]:
        """Messages and bytes in and out, clients, wakeups, reads, and what its result cache does.

        `lingered`: times that something came while the poller looked for it before going to sleep.
        """
    def state_now(self) -> dict[str, int | list[int]]:
        """What the poller holds at the moment; a hint only.

        `timers` armed; `deadline`: the first one, monotonic ns; `overdue`: nanoseconds by which it has
        passed; `unwatched`: whether it would pass unnoticed; free chunks by size; `settled`, under a held
        clock: the time of the last round after which nothing was left that was due.
        """
