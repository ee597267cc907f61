"""What JetStream adds to the pollers of a server: work at the end of their batches, timers, group commit."""

from collections.abc import Iterable

from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class StreamBase:
    """A stream, as its engine sees it; see gnats.jetstream.stream.stream.Stream."""

class Engine:
    """JetStream's part of one server's data plane.

    `pollers` are all pollers of the server, the control loop's first; `cids` gives a connection id for each.
    The control loop watches fileno() and calls run_timers(). Raises OSError when no descriptor can be had,
    MemoryError.
    """

    pollers: list[Poller]
    state: ServerState

    def __init__(self, pollers: list[Poller], state: ServerState, cids: Iterable[int]) -> None: ...
    def fileno(self) -> int:
        """A timerfd: readable when run_timers() has something to do."""
    def run_timers(self) -> None:
        """Call what is due. The control loop."""
    def clock_moved(self) -> None:
        """A held clock has moved: have run_timers() called if something is due. Any thread."""
    def run_batch(self) -> None:
        """An empty batch of the control loop's poller: carry out what has been left for it."""
    def start_sync(self) -> None:
        """Start the sync thread; streams with sync_always need it. Idempotent. Raises OSError."""
    def stop_sync(self) -> None:
        """Sync what is waiting and end the thread. Idempotent."""
    def sync_soon(self, stream: StreamBase) -> None:
        """Have the sync thread sync what a stream has flushed: for `sync_interval`. Nobody waits for it.

        Raises OSError when the thread cannot be started, MemoryError.
        """
    def bury(self, what: object) -> None:
        """Keep a stream, a consumer or a source that was closed until no thread can be using it."""
    def reap(self) -> None:
        """Let go of what was buried and is no longer used."""
    def stats(self) -> dict[str, int]:
        """Counters, and how it is at the moment.

        `syncs`: fdatasyncs so far; `rounds` of timers so far; `timers` armed; `deadline`: the first one,
        monotonic ns; `overdue`: nanoseconds by which it has passed; `unwatched`: whether it would pass
        unnoticed; `buried`: closed streams and consumers still kept.
        """
    def close(self) -> None:
        """Streams and consumers are closed, and the pollers' threads have ended. Idempotent."""
