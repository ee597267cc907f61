"""The control plane's side of a gateway connection: its peer, its cluster, its name in the log."""

from typing import TYPE_CHECKING

from gnats.cluster.link_connection import LinkConnection
from gnats.connection.connect_options import ClientOptions
from gnats.core.tls.tlstransport import tls_info
from gnats.go.text import join_host_port
from gnats.options.values.cluster import NOT_SUPPORTED

if TYPE_CHECKING:
    from gnats.connection.closed_state import ClosedState
    from gnats.core.links.gateway_session import GatewaySession
    from gnats.core.tls.tlstransport import TLSInfo
    from gnats.gateways.remote import Remote
    from gnats.go.url import URL

TRANSITIONING = "Transitioning"
INTEREST_ONLY = "Interest-Only"


class Gateway(LinkConnection["GatewaySession"]):
    """A connection to a server of another cluster.

    An outbound one, to `remote` at `url`, was dialled by this server: it carries messages to the peer. An
    inbound one brings them, and carries this cluster's interest.
    """

    __slots__ = ("answered", "mark", "modes", "name", "registered", "remote", "told")

    def __init__(
        self,
        session: "GatewaySession",
        host: str,
        port: int,
        remote: "Remote | None" = None,
        url: "URL | None" = None,
    ) -> None:
        super().__init__(session, host, port, url)
        self.remote = remote
        self.name = remote.name if remote else ""
        """The cluster of the peer; of an inbound connection, known from its INFO."""
        self.registered = False
        """It is in the table."""
        self.answered = False
        """The peer of an outbound connection has sent an INFO since CONNECT: it has not refused that."""
        self.mark = ""
        """The last mark that has come (gnats.gateways.mesh)."""
        self.told = b""
        """What this cluster was told last of the peer's."""
        self.modes: dict[str, str] = {}
        """How far the peer has told of its interest in each account, for monitoring."""

    def __str__(self) -> str:
        """Return the connection's name in the log."""
        return f"{join_host_port(self.host, self.port)} - gid:{self.cid}"

    @property
    def outbound(self) -> bool:
        """Whether this server has dialled."""
        return self.remote is not None

    @property
    def solicited(self) -> bool:
        """The same, as other kinds of connections call it."""
        return self.remote is not None

    # -- for monitoring, which shows it as a client's connection ---------------------------------------------

    compression = NOT_SUPPORTED
    stop = 0
    reason: "ClosedState | None" = None
    kind_name = "Gateway"
    client_type = ""

    @property
    def opts(self) -> ClientOptions:
        """The name that is shown, the peer's server id."""
        return ClientOptions(name=self.remote_id)

    def snapshot(self) -> dict[str, int]:
        """Return the counters; none of a closed connection."""
        return self.session.snapshot() if self.session else {}

    def tls_info(self) -> "TLSInfo | None":
        """Return the results of its TLS handshake."""
        return tls_info(self.session) if self.session else None

    @property
    def rtt(self) -> int:
        """The round trip time in ns; 0: not measured."""
        return self.session.snapshot()["rtt"] if self.session else 0
