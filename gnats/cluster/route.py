"""The control plane's side of a route: its peer, its place in the table, its name in the log."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnats.clock import time_ns
from gnats.cluster.compression import level_for, negotiates
from gnats.cluster.info import GOSSIP_DEFAULT, PeerConnect, PeerInfo
from gnats.connection.closed_state import ClosedState
from gnats.go.text import SECOND, join_host_port, quote
from gnats.go.url import URL
from gnats.options.values.cluster import (
    MAX_PING_INTERVAL,
    NOT_SUPPORTED,
    S2_AUTO,
    S2_UNCOMPRESSED,
    Compression,
)
from gnats.runtime.reported import ReportedConnection

if TYPE_CHECKING:
    from gnats.core.links.route_session import RouteSession
    from gnats.log.logger import Logger
    from gnats.options.options import Options


@dataclass(frozen=True, slots=True)
class Target:
    """A server to dial."""

    url: URL
    explicit: bool = False
    """It is one of the configuration's routes; else another server has told of it."""
    account: str = ""
    """The account that the connection is for alone; empty: a connection of the pool."""
    gossip_mode: int = GOSSIP_DEFAULT


def ping_limits(opts: "Options") -> dict[str, Any]:
    """Return how often routes are sent PINGs, and how many may be unanswered."""
    cluster = opts.cluster
    return {
        "ping_interval": min(cluster.ping_interval or opts.ping_interval, MAX_PING_INTERVAL),
        "ping_max": max(cluster.ping_max or opts.ping_max, -1),
    }


class Route(ReportedConnection):
    """A connection to another server of the cluster. `target` is None for one that was accepted.

    `index`, `no_pool` and `registered` change with the table (routes.py) only.
    """

    __slots__ = (
        "account",
        "cid",
        "compression",
        "connect",
        "connected",
        "dial_next",
        "explicit",
        "gossip_mode",
        "host",
        "index",
        "joined",
        "mark",
        "negotiated",
        "no_pool",
        "no_reconnect",
        "peer",
        "port",
        "registered",
        "remote_id",
        "retry",
        "session",
        "solicited",
        "start",
        "to_self",
        "url",
    )

    def __init__(self, session: "RouteSession", host: str, port: int, target: Target | None = None) -> None:
        super().__init__()
        self.session: RouteSession | None = session
        self.cid = session.cid
        self.host = host
        self.port = port
        self.start = time_ns()
        self.solicited = target is not None
        """This server has dialled it, or has dialled another connection that it replaces."""
        self.explicit = target is not None and target.explicit
        self.url = target.url if target else None
        """What to dial when it is lost; of an accepted route, known from the peer's INFO."""
        self.account = target.account if target else ""
        """The account that it is for alone; empty: it is one of the pool."""
        self.gossip_mode = target.gossip_mode if target else GOSSIP_DEFAULT
        self.compression = NOT_SUPPORTED
        """How this server compresses what it sends."""
        self.negotiated = False
        """The servers have agreed whether to compress, or need not."""
        self.connect = PeerConnect()
        self.connected = False
        """True once a CONNECT was accepted."""
        self.peer: PeerInfo | None = None
        """The peer's first INFO."""
        self.remote_id = ""
        self.index = -1
        """The place in the pool; -1 while it is not registered, and of a route for one account."""
        self.no_pool = False
        """The peer, or this server, has no pool: the connection is for all accounts."""
        self.registered = False
        self.joined = False
        """It has been registered, at least for a while."""
        self.mark = ""
        """The last mark that has come (gnats.cluster.mesh)."""
        self.retry = False
        """Dial the peer when the connection is lost even if this server has not dialled it."""
        self.no_reconnect = False
        self.to_self = False
        """The peer is this server itself."""
        self.dial_next: Target | None = None
        """The next connection of the pool, to dial when the peer has answered a PING."""

    def __str__(self) -> str:
        """Return the route's name in the log."""
        return f"{join_host_port(self.host, self.port)} - rid:{self.cid}"

    @property
    def connection(self) -> "RouteSession | None":
        return self.session

    @property
    def remote_name(self) -> str:
        """The peer's server name, empty before its INFO."""
        return self.peer.server_name if self.peer else ""

    @property
    def trace_name(self) -> str:
        """The peer's server name, for traces of messages."""
        return self.remote_name

    @property
    def trace_account(self) -> str:
        """Messages name their account."""
        return ""

    @property
    def closing(self) -> bool:
        """Whether the connection is closed, or will be."""
        return self.session is None or self.leaving or self.session.closed_reason != 0

    @property
    def headers(self) -> bool:
        """Whether the peer takes headers."""
        return self.peer is not None and self.peer.headers

    def peer_certificate(self) -> bytes | None:
        """Return the certificate of the peer (DER); None without one, or without TLS."""
        from gnats.core.tls.tlstransport import tls_info

        info = tls_info(self.session) if self.session else None
        return info["peer_certs"][0] if info and info["peer_certs"] else None

    def peer_key(self) -> str:
        """Return the digest of the key of the peer's certificate, as in pinned_certs; empty without one."""
        if (der := self.peer_certificate()) is None:
            return ""
        from gnats.tls.certs import PeerCertificate

        return PeerCertificate.from_der(der).spki_sha256

    def auth_user(self) -> str:
        """Return the user's name for authentication errors; empty without a user."""
        return f"User {quote(self.connect.user)}" if self.connect.user else ""

    def rate_limit(self, log: "Logger", level: str, text: str) -> None:
        """Log a statement about the route, unless the same was logged in the last second."""
        user = f"user:{self.connect.user}" if self.connected and self.connect.user else ""
        self.log_limited(log, level, text, user)

    def refuse(self, log: "Logger", reason: ClosedState, error: str) -> None:
        """Close the connection with an error, which is logged (sendErrAndErr)."""
        self.rate_limit(log, "ERR", error)
        self.close(log, reason, error)

    def out_of_memory(self, log: "Logger") -> None:
        """Close the connection because it cannot be told of a change."""
        log.error(f"{self} - Out of memory - Closing")
        self.close(log, ClosedState.READ_ERROR)

    def send(self, line: bytes) -> None:
        """Send an INFO line to the peer, unless the connection is closed."""
        if self.session and not self.leaving:
            self.session.enqueue_proto(line)

    def s2_level(self, thresholds: Sequence[float]) -> str:
        """Return the level for the round trip time; before the first PONG, for the time of the handshake."""
        assert self.session
        return level_for((self.session.snapshot()["rtt"] or time_ns() - self.start) / SECOND, thresholds)

    def follow_rtt(self, configured: Compression) -> None:
        """Compress as the round trip time says, if configured so (updateS2AutoCompressionLevel)."""
        if self.session and configured.mode == S2_AUTO and negotiates(self.compression):
            self.use_level(self.s2_level(configured.rtt_thresholds))

    def use_level(self, level: str) -> None:
        """Use another level of compression; the peer need not know."""
        if self.session and level != self.compression:
            self.compression = level
            self.session.set_uncompressed(level == S2_UNCOMPRESSED)

    def target(self, *, account: str | None = None, gossip_mode: int = GOSSIP_DEFAULT) -> Target:
        """Return what to dial for another connection to the peer; by default for the same account."""
        assert self.url
        return Target(self.url, self.explicit, self.account if account is None else account, gossip_mode)
