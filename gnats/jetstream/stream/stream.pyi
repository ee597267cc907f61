"""The data plane's half of a stream, as the control plane uses it."""

from gnats.core.accounts.account import Account
from gnats.core.internal import InternalSubscriber
from gnats.jetstream.consumer.consumer import Consumer
from gnats.jetstream.engine.consumerbase import ConsumerBase
from gnats.jetstream.engine.engine import Engine, StreamBase
from gnats.jetstream.engine.usage import Usage
from gnats.jetstream.settings.config import StreamConfig
from gnats.jetstream.state.batchtable import BatchLimits
from gnats.store.store import MsgStore, StreamState

class StreamError(ValueError):
    """A stream refuses an operation; the text is nats-server's."""

StoredMsg = tuple[int, int, bytes, bytes, bytes]
"""Sequence, ns since 1970, subject, header, payload."""

class Stream(StreamBase):
    """A stream: its subjects, its store, its consumers.

    Used from the control loop's thread, unless a method says otherwise. Nothing happens before configure(),
    and nothing is stored before subscribe(). `cid` is the connection id of its subscriptions. `account_usage`
    and `server_usage` count its bytes. `domain` is sent to publishers. `max_direct` is the server's
    max_pending, `max_payload` its max_payload, both in bytes. `batch_limits` are the server's, too, and count
    the open batches of all streams that share them; without them, the stream has its own. Raises MemoryError.
    """

    engine: Engine
    store: MsgStore
    name: str
    client: InternalSubscriber
    account_usage: Usage | None
    server_usage: Usage | None
    batch_limits: BatchLimits
    config: StreamConfig | None

    def __init__(
        self,
        engine: Engine,
        account: Account,
        name: str,
        store: MsgStore,
        *,
        cid: int,
        account_usage: Usage | None = None,
        server_usage: Usage | None = None,
        domain: str = "",
        max_direct: int = ...,
        max_payload: int = ...,
        batch_limits: BatchLimits | None = None,
    ) -> None: ...
    @property
    def failure(self) -> str:
        """The error after which nothing can be stored any more, "" without one."""
    @property
    def is_subscribed(self) -> bool: ...
    @property
    def consumers(self) -> tuple[ConsumerBase, ...]:
        """The consumers, oldest first."""
    def configure(self, config: StreamConfig, *, sync_always: bool = False) -> None:
        """Apply a checked StreamConfig, at the start or as an update. The caller configures the store.

        With `sync_always`, publishers are answered after an fdatasync. Raises ValueError for unsupported
        settings and malformed transforms, MemoryError, OSError when the sync thread cannot be started.
        """
    def limits_changed(self) -> None:
        """Tell usage and consumers of the messages that the store removed when its limits were changed.

        Any thread.
        """
    def forget_unneeded(self) -> None:
        """Remove the messages that no consumer needs, if retention depends on consumers. Any thread."""
    def look_for_expired(self) -> None:
        """Check soon for expired messages, after the limits of the store have changed."""
    def subscribe(self) -> None:
        """Store messages to the subjects of the configuration, and answer direct gets if it says so.

        Unsubscribes from subjects that are no longer in the configuration. Raises ValueError for an invalid
        subject, MemoryError.
        """
    def answer_for(self, origin: str) -> None:
        """Answer direct gets to this mirror's origin, too; "": no longer.

        Raises ValueError for an invalid name, MemoryError.
        """
    def unsubscribe(self) -> None:
        """Stop storing messages and answering direct gets."""
    def close(self) -> None:
        """Close the stream: after its consumers, before the store, which the caller closes. Idempotent."""
    def add_consumer(self, consumer: ConsumerBase) -> None:
        """Notify a consumer of stored and removed messages. Raises MemoryError."""
    def remove_consumer(self, consumer: ConsumerBase) -> None:
        """Stop notifying a consumer; the caller must bury it then (Engine.bury). Raises MemoryError."""
    def consumers_with(self, subject: bytes) -> list[Consumer]:
        """Return the consumers with a filter that overlaps with a subject, which may have wildcards.

        When there are few consumers, it may return all of them. Raises MemoryError.
        """
    def state(self) -> StreamState:
        """Return the store's state (gnats.store.store)."""
    def get_msg(self, seq: int) -> StoredMsg:
        """Return a message. Raises StoreFailure when there is none."""
    def last_msg(self, subject: bytes) -> StoredMsg | None:
        """Return the last message of a subject, which may have wildcards; None when there is none."""
    def next_msg(self, subject: bytes, start: int) -> StoredMsg | None:
        """Return a subject's first message from `start` on, None without one; wildcards are allowed."""
    def delete_msg(self, seq: int, erase: bool = False) -> bool:
        """Remove a message; with `erase`, overwrite it. False when there was none. Any thread.

        Raises StreamError for a sealed or closed stream, StoreFailure when it cannot be done.
        """
    def purge(self, subject: bytes = b"", seq: int = 0, keep: int = 0) -> int:
        """Remove all messages, or those of `subject`, below `seq`, or all but the last `keep`.

        Return the number of removed messages. Any thread. Raises StreamError for a sealed or closed stream,
        StoreFailure when it cannot be done.
        """
    def advisory_published(self) -> None:
        """Note that the advisory of a BATCH_ABANDONED event has been published."""
    def look_at_batches(self) -> None:
        """Abandon soon the batches that have been silent for too long, after batch_limits have changed."""
    def msg_ids(self) -> int:
        """Return the number of remembered message ids."""
