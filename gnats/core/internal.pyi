"""The server's own subscribers, which have no socket."""

from gnats.core.accounts.account import Account
from gnats.core.accounts.subscriber import Subscriber
from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class InternalSubscriber(Subscriber):
    """One of the server's own subscribers: `kind` is SYSTEM, JETSTREAM or ACCOUNT, `fd` is -1."""

    def __init__(self, kind: int, fd: int, cid: int, poller: Poller, state: ServerState) -> None: ...
    def register(self, account: Account) -> None:
        """Publish and subscribe in `account`. Call it before anything else."""
    def close_connection(self, reason: int) -> None:
        """End all subscriptions; EV_CLOSED follows. Idempotent."""
    def subscribe_internal(self, subject: bytes, queue: bytes | None, sid: bytes) -> None:
        """Subscribe: messages arrive as EV_MSG.

        Raises ValueError for an invalid subject or a sid in use, MemoryError.
        """
    def unsubscribe_internal(self, sid: bytes) -> None:
        """Undo subscribe_internal. Raises KeyError for an unknown sid."""
    def publish_internal(
        self, subject: bytes, reply: bytes | None, headers: bytes | None, payload: bytes
    ) -> bool:
        """Publish. Return whether a subscriber received the message.

        `headers` is a whole header block, from the "NATS/1.0" line to the empty line. A `reply` of b"" leaves
        an empty place for it in the MSG line, as nats-server's own messages do; None leaves none. Runs a
        whole batch of the control loop's poller. Raises MemoryError.
        """
