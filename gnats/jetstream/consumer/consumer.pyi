"""A consumer (consumer.go), as the control plane uses it."""

from typing import Any

from gnats.jetstream.engine.observer import Observer
from gnats.jetstream.settings.config import ConsumerConfig
from gnats.jetstream.stream.stream import Stream

class ResetError(ValueError):
    """A consumer cannot be reset to a sequence; the text is nats-server's."""

class Consumer(Observer):
    """A consumer of a stream. Used from the control loop's thread.

    `config` is a checked configuration; `account` the account's name. `domain` and `reply_v2` say how reply
    subjects are formed. A new consumer begins where its configuration says, one with `state` (an o.dat,
    unsealed) where it was. `burst` is the most bytes that a message may have where the stream does not say.
    `created` is in ns since 1970, 0 for now. Nothing happens before start().

    What it has to tell comes as an EV_JETSTREAM of the control poller's inbox, `a` a ConsumerEvent, for
    notice(). Raises ValueError for a state that cannot be read, MemoryError.
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
        account: str = "$G",
        domain: str = "",
        reply_v2: bool = False,
        state: bytes | None = None,
        burst: int = 1048576,
        created: int = 0,
    ) -> None: ...
    def configure(self, config: ConsumerConfig) -> None:
        """Take a checked configuration that may replace the one there is. Raises MemoryError."""
    def start(self) -> None:
        """Subscribe, and deliver from now on. The stream knows it from here on. Raises MemoryError."""
    def close(self, *, deleted: bool = False) -> None:
        """Leave the stream. Idempotent. `deleted`: for good, which clients that wait are told; then
        forget_unneeded() is to be called, unless the stream goes, too."""
    def signal_shutdown(self) -> None:
        """Tell those who wait for messages that the server stops. The control loop."""
    def forget_unneeded(self) -> None:
        """Have the stream remove what no consumer is interested in any more, when this one has been deleted
        or filters others. It looks at each message behind the ack floor: any thread."""
    def check_state_for_interest_stream(self) -> None:
        """After recovery, in a stream that keeps messages until they are acknowledged: those that were
        acknowledged to this consumer, but had not been removed yet. Any thread."""
    def info(self) -> dict[str, Any]:
        """What ConsumerInfo says of it. Times are ns since 1970, 0 for never; `pin` is None without one."""
    @property
    def is_active(self) -> bool:
        """Somebody listens to the deliver subject. Of a push consumer."""
    def unpin(self) -> bool:
        """Take the pin from who has it; False when nobody has."""
    def reset(self, seq: int = 0) -> int:
        """Begin anew at a sequence, 0: behind the ack floor; the sequence. Raises ResetError."""
    @staticmethod
    def notice(data: bytes) -> tuple[int, int, int, int, bytes]:
        """(stream seq, consumer seq, deliveries, ack time in ns, text) of what an EV_JETSTREAM says.

        Raises ValueError for other data.
        """
    @property
    def is_dirty(self) -> bool:
        """The state has changed since state() was asked for."""
    def state(self) -> bytes:
        """The state, as o.dat has it, unsealed. Raises MemoryError."""
    def restore(self, data: bytes) -> None:
        """Go on from a state that state() gave, or nats-server wrote. Before start(). Raises ValueError,
        MemoryError."""
