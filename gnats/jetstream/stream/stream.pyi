"""A stream, as the control plane uses it."""

from gnats.core.accounts.account import Account
from gnats.core.client import Client
from gnats.jetstream.consumer.consumer import Consumer
from gnats.jetstream.engine.engine import Engine, StreamBase
from gnats.jetstream.engine.observer import Observer
from gnats.jetstream.engine.usage import Usage
from gnats.jetstream.settings.config import StreamConfig
from gnats.jetstream.state.batchtable import BatchLimits
from gnats.store.store import MsgStore, StreamState

MAX_DIRECT: int
"""Bytes that one direct get answers with unless it says otherwise: nats-server's default max_pending."""

class StreamError(ValueError):
    """Something cannot be done to a stream; the text is nats-server's."""

StoredMsg = tuple[int, int, bytes, bytes, bytes]
"""Sequence, ns since 1970, subject, header, payload."""

class Stream(StreamBase):
    """A stream: its subjects, its store, its consumers. Used from the control loop's thread, unless a method
    says
    else.

    Nothing happens before configure(), and nothing is stored before subscribe(). `cid` is the connection id
    of its
    subscriptions. `account_usage` and `server_usage` count what it takes. `domain` is told to publishers.
    `max_direct` is the server's max_pending, `max_payload` its max_payload. `batch_limits` are the
    server's, too, and count the open batches of all streams that have them; without any it has its own.
    Raises MemoryError.
    """

    engine: Engine
    store: MsgStore
    name: str
    client: Client
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
        max_payload: int = 1048576,
        batch_limits: BatchLimits | None = None,
    ) -> None: ...
    @property
    def failure(self) -> str:
        """Why nothing can be stored any more; empty when all is well."""
    @property
    def is_subscribed(self) -> bool: ...
    @property
    def consumers(self) -> tuple[Observer, ...]:
        """The consumers, oldest first."""
    def configure(self, config: StreamConfig, *, sync_always: bool = False) -> None:
        """Take a checked StreamConfig, at the start or as an update. The store is configured by its owner.

        With `sync_always`, publishers are answered after an fdatasync. Raises ValueError for what is not
        supported
        and for a transform that is none, MemoryError, OSError when the sync thread cannot be started.
        """
    def look_for_expired(self) -> None:
        """Have what has expired go soon: after the limits of the store were changed."""
    def subscribe(self) -> None:
        """Store what is published to the subjects of the configuration from now on; answer direct gets if it
        says
        so.

        Subjects that are no longer in the configuration are unsubscribed from. Raises ValueError for an
        invalid
        subject, MemoryError.
        """
    def answer_for(self, origin: str) -> None:
        """Answer direct gets to the stream of that name too, which this one is a mirror of; "" for none any
        more.

        Raises ValueError for a name that is none, MemoryError.
        """
    def unsubscribe(self) -> None:
        """Take nothing more, and answer no direct gets."""
    def close(self) -> None:
        """Leave: consumers are closed before, the store is closed after it, by who opened it. Idempotent."""
    def add_consumer(self, consumer: Observer) -> None:
        """Tell it of what is stored and removed from now on. Raises MemoryError."""
    def remove_consumer(self, consumer: Observer) -> None:
        """Tell it nothing more; it is to be buried (Engine.bury) then. Raises MemoryError."""
    def consumers_with(self, subject: bytes) -> list[Consumer]:
        """The consumers that have a filter with a literal subject in common with this one, which may have
        wildcards;
        or, where they are few, all of them. Raises MemoryError."""
    def state(self) -> StreamState:
        """The store's state (gnats.store.store)."""
    def get_msg(self, seq: int) -> StoredMsg:
        """A message. Raises StoreFailure when there is none."""
    def last_msg(self, subject: bytes) -> StoredMsg | None:
        """The last message of a subject, which may have wildcards; None when there is none."""
    def next_msg(self, subject: bytes, start: int) -> StoredMsg | None:
        """The first message of a subject (which may have wildcards) from a sequence on; None when there is
        none.
        """
    def delete_msg(self, seq: int, erase: bool = False) -> bool:
        """Remove a message; with `erase`, overwrite it. False when there was none. Any thread.

        Raises StreamError for a sealed or closed stream, StoreFailure when it cannot be done.
        """
    def purge(self, subject: bytes = b"", seq: int = 0, keep: int = 0) -> int:
        """Remove all messages, of a subject if it is given, below a sequence or but for the last `keep`; how
        many.

        Any thread. Raises StreamError for a sealed or closed stream, StoreFailure when it cannot be done.
        """
    def told_abandoned(self) -> None:
        """The control loop has published an advisory about a batch (BATCH_ABANDONED)."""
    def look_at_batches(self) -> None:
        """Give up soon what is silent for too long: after batch_limits were changed."""
    def msg_ids(self) -> int:
        """Message ids that are remembered."""
