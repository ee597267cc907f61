"""The session of a gateway, which connects two clusters."""

from gnats.core.accounts.registry import AccountRegistry
from gnats.core.links.link_session import LinkSession
from gnats.core.poller import Poller
from gnats.core.runtime.state import ServerState

class GatewaySession(LinkSession):
    """A connection to another cluster; see Connection. `kind` is GATEWAY.

    Sizes are in bytes, -1 for no limit; `write_deadline` and `ping_interval` in seconds. `outbound`: this
    server has dialled; it sends messages and takes interest, the other side the reverse. The peer owes a
    CONNECT if it has dialled, and an INFO. The control plane answers each with a call below; nothing is
    parsed before. PINGs are sent from accept_connect() or join() on; a peer that does not come to there
    within the time of all unanswered PINGs is closed. An outbound session posts EV_PONG at each PONG.
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
        outbound: bool,
        max_control_line: int = ...,
        max_payload: int = ...,
        max_pending: int = ...,
        write_deadline: float = ...,
        retries: bool = ...,
        ping_interval: float = ...,
        ping_max: int = ...,
    ) -> None: ...
    def accept_connect(self) -> None:
        """Accept the peer's CONNECT: all verbs are allowed from now on. Go on parsing."""
    def join(
        self,
        *,
        greeting: bytes = b"",
        cluster: bytes,
        headers: bool,
        traces: bool,
        command: bytes = b"",
        rank: int = 0,
        digests: bool = False,
    ) -> None:
        """Begin to exchange interest and messages with the peer, which is registered; go on parsing.

        `greeting` is sent first. The peer is of `cluster`; `headers` and `traces` say what it knows. An
        inbound session announces all interest: `command` is the text of an INFO line up to the value of
        gateway_cmd. An outbound one is sent messages; see set_rank() for `rank`. With `digests`, the peer
        and this server compare digests of interest. Call it once. Raises MemoryError.
        """
    def set_rank(self, rank: int) -> None:
        """Place an outbound session: a message for a queue group goes to the lowest rank first."""
