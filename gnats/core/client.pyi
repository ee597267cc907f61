"""A connection of the data plane, as Python sees it."""

from gnats.core.accounts.account import Account
from gnats.core.accounts.subscriber import Subscriber
from gnats.core.auth.permissions import Permissions
from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class Client(Subscriber):
    """A connection that speaks the protocol, or one of the server's own subscribers (fd -1)."""

    def __init__(
        self,
        kind: int,
        fd: int,
        cid: int,
        poller: Poller,
        state: ServerState,
        *,
        max_control_line: int = 4096,
        max_payload: int = 1048576,
        max_pending: int = 67108864,
        max_subs: int = -1,
        write_deadline: float = 10.0,
        ping_interval: float = 120.0,
        ping_max: int = 2,
    ) -> None: ...
    def start(self, info: bytes, *, expect_connect: bool, auth_timeout: float = 0.0) -> None:
        """Hand the connection to its poller: send `info`, then read.

        With `expect_connect` any verb but CONNECT is an authorization violation, and after `auth_timeout`
        seconds without one the connection is closed.
        """
    def refuse(self, info: bytes, reason: int, err: str) -> None:
        """Greet, send `-ERR 'err'` and close, without reading anything."""
    def resume(self) -> None:
        """Go on parsing after a punted INFO has been answered."""
    def close_connection(self, reason: int, err: str | None = None) -> None:
        """Send `-ERR 'err'` if given and close; EV_CLOSED follows once that is done. Idempotent."""
    def set_limits(
        self,
        *,
        max_control_line: int,
        max_payload: int,
        max_subs: int,
        ping_interval: float,
        ping_max: int,
    ) -> None:
        """Limits from now on, -1 for none; subscriptions over theirs stay."""
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
