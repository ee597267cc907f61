"""A client of the data plane: the session of a NATS client."""

from gnats.core.accounts.account import Account
from gnats.core.auth.permissions import Permissions
from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState
from gnats.core.textsession import TextSession

class Client(TextSession):
    """A connection of a NATS client; see Connection.

    Sizes are in bytes, `write_deadline` and `ping_interval` in seconds; -1 for max_payload or max_subs means
    no limit. With `retries`, a client that misses the write deadline stays if it has read since that was set.
    """

    def __init__(
        self,
        kind: int,
        fd: int,
        cid: int,
        poller: Poller,
        state: ServerState,
        *,
        max_control_line: int = ...,
        max_payload: int = ...,
        max_pending: int = ...,
        max_subs: int = -1,
        write_deadline: float = ...,
        retries: bool = ...,
        ping_interval: float = ...,
        ping_max: int = ...,
    ) -> None: ...
    def set_limits(
        self,
        *,
        max_control_line: int,
        max_payload: int,
        max_subs: int,
        ping_interval: float,
        ping_max: int,
    ) -> None:
        """Set limits, -1 for none; `ping_interval` in seconds. Subscriptions over max_subs stay."""
    def register(self, account: Account) -> None:
        """Publish and subscribe in `account`. Call it before start()."""
    def accept_connect(
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
        """Accept a CONNECT: set its account and options, send `greeting` (+OK or nothing), and go on parsing.

        `connect_info` is the INFO line to send behind the first PONG to a client with protocol 1.
        `permissions` None allows everything; -1 means no limit. Without memory for `connect_info` the
        connection is closed. Raises MemoryError.
        """
    def replace_connect_info(self, line: bytes) -> bool:
        """Replace accept_connect()'s `connect_info`, unless it has been sent; return whether it has not.

        Raises MemoryError.
        """
    @property
    def pong_sent(self) -> bool:
        """Whether the client's first PING has been answered. From then on it may be sent INFO at any time."""
