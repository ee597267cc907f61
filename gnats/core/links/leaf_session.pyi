"""The session of a leaf node, which connects an account here with one of another server."""

from enum import IntEnum

from gnats.core.accounts.account import Account
from gnats.core.accounts.registry import AccountRegistry
from gnats.core.auth.permissions import Permissions
from gnats.core.links.link_session import LinkSession
from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class LeafEvent(IntEnum):
    """What the peer has sent that the control plane answers: `a` of EV_LEAF. Nothing more is read."""

    LEAF_LOOP = 1
    """Interest in the account's own loop subject has come back; data: the subject."""
    LEAF_PUBLISH_DENIED = 2
    """Permissions forbid the peer to send a message; data: its subject."""
    LEAF_SUBSCRIBE_DENIED = 3
    """They forbid it to subscribe; data: the subject."""
    LEAF_ERROR = 4
    """The peer has sent -ERR; data: what followed it."""

class LeafSession(LinkSession):
    """A connection to a hub or to a leaf node; see Connection. `kind` is LEAF.

    Sizes are in bytes, -1 for no limit; `write_deadline` and `ping_interval` in seconds. The peer owes a
    CONNECT if it has dialled, else an INFO. The control plane answers each with a call below; nothing is
    parsed before. With `negotiates`, the peer may send an INFO before its CONNECT. PINGs are sent from
    join() on.
    """

    def __init__(
        self,
        kind: int,
        fd: int,
        cid: int,
        poller: Poller,
        state: ServerState,
        registry: AccountRegistry,
        *,
        max_control_line: int = ...,
        max_payload: int = ...,
        max_pending: int = ...,
        write_deadline: float = ...,
        retries: bool = ...,
        ping_interval: float = ...,
        ping_max: int = ...,
        negotiates: bool = ...,
    ) -> None: ...
    def accept_connect(self) -> None:
        """Go on parsing after the peer's CONNECT; only join() allows it to subscribe and to publish."""
    def join(
        self,
        account: Account,
        *,
        greeting: bytes = b"",
        cluster: bytes,
        spoke: bool,
        isolated: bool,
        dialled: bool = False,
        headers: bool,
        traces: bool,
        passes: bool = False,
        loop_subject: bytes,
        mapped: tuple[bytes, ...] = (),
        permissions: Permissions | None = None,
        receive: Permissions | None = None,
        max_subs: int = -1,
        max_payload: int = -1,
    ) -> None:
        """Begin to exchange interest and messages with the peer, which is registered; go on parsing.

        `greeting` is sent first. The peer, of `cluster`, gets what happens in `account`. `spoke`: the peer is
        the hub. `dialled`: this server has dialled it. `isolated`: it is not told of other leaf nodes'
        interest. `headers`, `traces` and `passes` (messages that are passed on to queue groups alone) say
        what the peer knows. `loop_subject` and the subjects in `mapped` are announced whoever subscribes;
        when the former comes back, LEAF_LOOP is reported. `permissions` say what is announced (subscribe),
        and what the peer may subscribe to and is sent (publish); `receive` what the peer may send (publish);
        a spoke may be sent what is announced. Call it once. Raises MemoryError.
        """
    def set_permissions(self, permissions: Permissions | None, receive: Permissions | None = None) -> None:
        """Replace join()'s permissions: tell the peer what it may hear of now. Raises MemoryError."""
    def set_mapped(self, mapped: tuple[bytes, ...]) -> None:
        """Replace join()'s `mapped`. Raises MemoryError."""
