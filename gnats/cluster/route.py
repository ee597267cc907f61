"""The control plane's side of a route: its peer, its place in the table, its name in the log."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnats.clock import time_ns
from gnats.cluster.compression import level_for, negotiates
from gnats.cluster.info import GOSSIP_DEFAULT
from gnats.cluster.link_connection import LinkConnection
from gnats.go.text import SECOND, join_host_port
from gnats.go.url import URL
from gnats.options.values.cluster import (
    MAX_PING_INTERVAL,
    NOT_SUPPORTED,
    S2_AUTO,
    S2_UNCOMPRESSED,
    Compression,
)

if TYPE_CHECKING:
    from gnats.core.links.route_session import RouteSession
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


class Route(LinkConnection["RouteSession"]):
    """A connection to another server of the cluster. `target` is None for one that was accepted.

    `index`, `no_pool` and `registered` change with the table (routes.py) only.
    """

    __slots__ = (
        "account",
        "compression",
        "dial_next",
        "explicit",
        "gossip_mode",
        "index",
        "joined",
        "mark",
        "negotiated",
        "no_pool",
        "registered",
        "retry",
        "solicited",
        "to_self",
    )

    def __init__(self, session: "RouteSession", host: str, port: int, target: Target | None = None) -> None:
        super().__init__(session, host, port, target.url if target else None)
        self.solicited = target is not None
        """This server has dialled it, or has dialled another connection that it replaces."""
        self.explicit = target is not None and target.explicit
        # `url` is what to dial when it is lost; of an accepted route, known from the peer's INFO
        self.account = target.account if target else ""
        """The account that it is for alone; empty: it is one of the pool."""
        self.gossip_mode = target.gossip_mode if target else GOSSIP_DEFAULT
        self.compression = NOT_SUPPORTED
        """How this server compresses what it sends."""
        self.negotiated = False
        """The servers have agreed whether to compress, or need not."""
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
        self.to_self = False
        """The peer is this server itself."""
        self.dial_next: Target | None = None
        """The next connection of the pool, to dial when the peer has answered a PING."""

    def __str__(self) -> str:
        """Return the route's name in the log."""
        return f"{join_host_port(self.host, self.port)} - rid:{self.cid}"

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
