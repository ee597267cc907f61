"""A consumer (consumer.go), as the control plane uses it."""

from typing import Any

from gnats.jetstream.engine.consumerbase import ConsumerBase
from gnats.jetstream.settings.config import ConsumerConfig
from gnats.jetstream.stream.stream import Stream

class ResetError(ValueError):
    """A consumer cannot be reset to a sequence; the text is nats-server's."""

class Consumer(ConsumerBase):
    """A consumer of a stream. Used from the control loop's thread, unless a method says otherwise.

    `config` is a checked configuration; `account` is the account's name. `domain` and `reply_v2` determine
    the form of reply subjects. A new consumer starts where its configuration says, a consumer with `state`
    (an unsealed o.dat) where it was. `burst` is the largest message in bytes, if the stream sets no limit.
    `created` is in ns since 1970, 0 for now. Nothing happens before start().

    Its events arrive as EV_JETSTREAM in the control poller's inbox: `a` is a ConsumerEvent, and notice()
    decodes the data. Raises ValueError for a state that cannot be read, MemoryError.
    """

    stream: Stream
    name: str
    created: int
    config: ConsumerConfig

    def __init__(
        self,
        stream: Stream,
        name: str,
        config: ConsumerConfig,
        *,
        account: str,
        domain: str = "",
        reply_v2: bool = False,
        state: bytes | None = None,
        burst: int = ...,
        created: int = 0,
        replicated: bool = False,
    ) -> None: ...
    def configure(self, config: ConsumerConfig) -> None:
        """Apply a configuration that check_consumer_update() has passed. Raises MemoryError."""
    def start(self) -> None:
        """Join the stream, subscribe and begin to deliver. Raises MemoryError."""
    def close(self, *, deleted: bool = False, follows: bool = False) -> None:
        """Leave the stream. Idempotent.

        With `deleted`, waiting pull requests are answered so; then call forget_unneeded(), unless the stream
        is deleted, too.
        """
    def signal_shutdown(self) -> None:
        """Answer the waiting pull requests: the server is shutting down."""
    def forget_unneeded(self) -> None:
        """Make the stream remove messages that no consumer wants any more.

        Call it when this consumer was deleted or its filters have changed. Examines each message after the
        ack floor. Any thread.
        """
    def check_state_for_interest_stream(self) -> None:
        """Remove messages that were acknowledged to this consumer, but not removed before a crash.

        Call it after recovery, if the stream keeps messages until they are acknowledged. Any thread.
        """
    def info(self) -> dict[str, Any]:
        """Return the numbers for ConsumerInfo. Times are ns since 1970, 0 for never; `pin` may be None."""
    @property
    def is_active(self) -> bool:
        """Whether the deliver subject of a push consumer has a subscriber."""
    def unpin(self) -> bool:
        """Unpin the pinned client; False when there is none."""
    def check_reset(self, seq: int) -> int:
        """Return the sequence that a reset to `seq` begins at: behind the ack floor for 0.

        Raises ResetError when the deliver policy does not allow it.
        """
    def reset(self, seq: int) -> None:
        """Begin anew at a stream sequence, of check_reset()."""
    @staticmethod
    def notice(data: bytes) -> tuple[int, int, int, int, bytes]:
        """Decode an event's data: (stream seq, consumer seq, deliveries, ack time in ns, text).

        Raises ValueError for other data.
        """
    @property
    def is_dirty(self) -> bool:
        """Whether the state has changed since the last call of state()."""
    def state(self) -> bytes:
        """Return the state as an unsealed o.dat. Raises MemoryError."""
    def restore(self, data: bytes, *, replicated: bool = False) -> None:
        """Continue from a state of state() or of nats-server. Call it before start().

        Raises ValueError, MemoryError.
        """
