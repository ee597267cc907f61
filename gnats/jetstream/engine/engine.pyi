"""JetStream's part of a server's data plane: work at the end of pollers' batches, timers, group commit."""

from collections.abc import Iterable

from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class StreamBase:
    """A stream as its engine sees it; see gnats.jetstream.stream.stream.Stream."""

class Engine:
    """JetStream's part of one server's data plane.

    `pollers` are all pollers of the server, the control loop's first; `cids` has a connection id for each.
    The control loop must watch fileno() and call run_timers(). Raises OSError without a free descriptor,
    MemoryError.
    """

    pollers: list[Poller]
    state: ServerState

    def __init__(self, pollers: list[Poller], state: ServerState, cids: Iterable[int]) -> None: ...
    def fileno(self) -> int:
        """Return a timerfd that is readable when run_timers() must be called."""
    def run_timers(self) -> None:
        """Run the timers that are due. The control loop only."""
    def clock_moved(self) -> None:
        """Make fileno() readable if a timer is due, after a held clock was moved. Any thread."""
    def run_batch(self) -> None:
        """Run the work that waits for the end of a batch of the control loop's poller."""
    def start_sync(self) -> None:
        """Start the sync thread; streams with sync_always need it. Idempotent. Raises OSError."""
    def stop_sync(self) -> None:
        """Sync the streams that wait, and end the thread. Idempotent."""
    def bury(self, what: object) -> None:
        """Keep a closed stream, consumer or source until no thread can be using it."""
    def reap(self) -> None:
        """Free buried objects that no thread uses any more."""
    def stats(self) -> dict[str, int]:
        """Return counters and the present state.

        `syncs`: fdatasyncs; `rounds`: rounds of timers; `timers`: timers armed; `deadline`: the first one,
        monotonic ns; `overdue`: nanoseconds by which it has passed; `unwatched`: whether it would pass
        unnoticed; `buried`: closed streams and consumers still kept.
        """
    def close(self) -> None:
        """End the engine, after all streams, consumers and the pollers' threads. Idempotent."""
