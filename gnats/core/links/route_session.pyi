"""The session of a route, which connects two servers of a cluster."""

from gnats.core.accounts.registry import AccountRegistry
from gnats.core.auth.permissions import Permissions
from gnats.core.links.link_session import LinkSession
from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class RouteSession(LinkSession):
    """A connection to another server of the cluster; see Connection. `kind` is ROUTER.

    Sizes are in bytes, `write_deadline` and `ping_interval` in seconds. The peer owes a CONNECT if it has
    dialled, and an INFO. The control plane answers each with a call below; nothing is parsed before. With
    `retries`, a peer that misses the write deadline stays if it has read since that was set. With
    `negotiates`, send no PING before compress() or join(), and close the connection when neither is called
    within the time of all unanswered PINGs.
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
        max_pending: int = ...,
        write_deadline: float = ...,
        retries: bool = ...,
        ping_interval: float = ...,
        ping_max: int = ...,
        negotiates: bool = ...,
    ) -> None: ...
    def accept_connect(self, *, verbose: bool = False) -> None:
        """Accept the peer's CONNECT: all verbs are allowed from now on. Go on parsing.

        With `verbose`, answer messages and interest with +OK.
        """
    def announce_again(self) -> None:
        """Announce all interest again: the peer accepts more of it now."""
    def drop_account(self, name: bytes) -> None:
        """Announce an account no longer, and forget the peer's interest in it. Raises MemoryError.

        The peer, which is told so by other means, forgets ours. The account may be dropped already: the peer
        may have told of it since.
        """
    def carry(self, name: bytes) -> None:
        """Undo drop_account(), or join()'s `pinned` for this account: announce its interest.

        Raises MemoryError.
        """
    def join(
        self,
        *,
        greeting: bytes = b"",
        pool_index: int,
        pool_size: int,
        account: bytes = b"",
        pinned: tuple[bytes, ...] = (),
        headers: bool,
        traces: bool,
        origins: int = 0,
        permissions: Permissions | None = None,
        measure: bool = False,
        digests: bool = False,
        passes: bool = False,
    ) -> None:
        """Begin to exchange interest and messages with the peer, which is registered; go on parsing.

        `greeting` is sent first. The connection carries the accounts whose names have the index `pool_index`
        in a pool of `pool_size` connections, without those named in `pinned`; all accounts when the index is
        -1; or only the account that `account` names. `headers` and `traces` say what the peer knows,
        `origins` whether it knows the origins of what comes from leaf nodes: 0, 1 (not with LS-), 2;
        `permissions` what is announced (publish) and what the peer may subscribe to. With `measure`, send a
        PING, and post EV_PONG when it is answered. With `digests`, the peer and this server compare digests
        of interest. `passes`: the peer knows messages that are passed on to queue groups alone. Call it once.
        Raises MemoryError.
        """
