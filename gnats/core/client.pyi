"""A connection of the data plane, as Python sees it."""

from gnats.core.account import Account
from gnats.core.delivery import Deliverer
from gnats.core.permissions import Permissions

class Client(Deliverer):
    """A connection that speaks the protocol, or one of the server's own subscribers (fd -1)."""

    def register(self, account: Account) -> None:
        """Bind to an account, before start()."""
    def connected(
        self,
        account: Account,
        *,
        echo: bool,
        verbose: bool,
        pedantic: bool,
        headers: bool,
        no_responders: bool,
        protocol: int,
        connect_info: bytes,
        greeting: bytes = b"",
        permissions: Permissions | None = None,
        max_subs: int = -1,
        max_payload: int = -1,
    ) -> None:
        """The answer to a CONNECT: take these options, send `greeting` (+OK or nothing), and resume.
        `connect_info` is the INFO line sent after the first PONG when protocol >= 1.
        `permissions` None means all."""
    @property
    def pong_sent(self) -> bool:
        """Whether the client's first PING has been answered: from then on it may be sent INFO."""
    def subscribe_internal(self, subject: bytes, queue: bytes | None, sid: bytes) -> None: ...
    def unsubscribe_internal(self, sid: bytes) -> None: ...
    def publish_internal(
        self, subject: bytes, reply: bytes | None, headers: bytes | None, payload: bytes
    ) -> bool:
        """Route a message as if this client had published it; True when somebody received it."""
    def subscriptions(self) -> list[tuple[bytes, bytes, bytes, int, int]]:
        """(subject, queue, sid, delivered, max) of each subscription."""
