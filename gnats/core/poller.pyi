"""Pollers: one epoll set with its connections each (see docs/architecture.md)."""

from gnats.core.inbox import Inbox
from gnats.core.state import ServerState

class Poller:
    def __init__(self, index: int, inbox: Inbox, state: ServerState, *, solo: bool = False) -> None:
        """`index` is below 64 and its own within the server. `solo` promises that no other thread moves messages."""

    def fileno(self) -> int:
        """The epoll descriptor: readable when run_once has something to do."""
    def run_once(self, timeout_ms: int = 0) -> int:
        """Read, parse, route and flush everything that is ready, without the GIL; the number of events."""
    def run(self) -> None:
        """run_once until stop(); for a thread of its own. Never takes the GIL in between."""
    def stop(self) -> None:
        """Make run() return, from any thread."""
    def close(self) -> None:
        """Release descriptors and memory; all its clients must be closed, and run() have returned."""
    def stats(self) -> dict[str, int]:
        """in_msgs, in_bytes, out_msgs, out_bytes, clients, cache_entries, cache_hits, cache_misses, wakeups."""
