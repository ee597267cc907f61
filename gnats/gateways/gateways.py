"""A server's gateways: listens for them, dials other clusters, and joins what the other modules decide."""

import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from gnats.clock import sleep, time_ns
from gnats.cluster.connections import MAX_PENDING_FACTOR, Connections
from gnats.cluster.info import TRACES_PROTO, PeerInfo
from gnats.cluster.link_health import Configured, LinkHealth
from gnats.connection.closed_state import ClosedState
from gnats.core.net.connection import Connection
from gnats.core.routing.gateway_reply import GatewayReplies, name_hash
from gnats.core.runtime.inbox import EV_CLOSED, EV_PONG
from gnats.core.runtime.kinds import GATEWAY
from gnats.gateways.gateway import Gateway
from gnats.gateways.gossip import about_connected, about_others
from gnats.gateways.handshake import Handshake, Spawn
from gnats.gateways.info import GOSSIP, OwnInfo
from gnats.gateways.remote import Remote
from gnats.gateways.solicit import Solicitor
from gnats.gateways.table import GatewayTable
from gnats.go.text import SECOND, join_host_port, printable, quote, text_bytes
from gnats.go.url import URL
from gnats.runtime.accept import AcceptLoop, listen_for_servers
from gnats.runtime.reported import unmapped

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.cluster.route import Route
    from gnats.core.links.gateway_session import GatewaySession
    from gnats.core.runtime.state import ServerState
    from gnats.log.logger import Logger
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options
    from gnats.runtime.dispatch import EventTable
    from gnats.runtime.pollers import Pollers
    from gnats.tls.gateways import GatewayTLS
    from gnats.tls.leafs import DiallingTLS
    from gnats.tls.links import LinkTLS

INSECURE = (
    "TLS certificate chain and hostname of solicited gateways will not be verified. DO NOT USE IN PRODUCTION!"
)
SOLICIT_DELAY = 1.0
"""Seconds from the start until other clusters are dialled: this one's servers find each other meanwhile."""
SETTLED = 2
"""Seconds after which a connection is no refusal: a peer that ends it sooner is dialled ever later."""
MOST_DISCOVERED = 64
"""Clusters that other servers tell of; further ones are not dialled."""
MAX_PING_INTERVAL = 15.0
"""Seconds between PINGs, at most (adjustPingInterval)."""

_TLS_FAILED = ClosedState.TLS_HANDSHAKE_ERROR


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the gateways ask of their server."""

    next_cid: Callable[[], int]
    """Return an unused connection id."""
    gone: Callable[[], object]
    """A connection has gone."""
    dialled: Callable[[], object]
    """A connection to another cluster is made."""
    ranked: Callable[[], object]
    """The order of the other clusters may have changed."""
    accepted: Callable[[], object]
    """A connection from another cluster was registered."""
    tell_cluster: Callable[[bytes], object]
    """Send an INFO line to the other servers of this cluster."""
    is_here: Callable[[str], bool]
    """Return whether a server of this cluster has this name."""
    refused: Callable[[Gateway], object]
    """Tell of a peer whose credentials are refused."""


class Gateways(Connections[Gateway]):
    """The gateway connections of a server, in both directions.

    `options` returns the server's current options; `session` makes sessions of sockets.
    """

    def __init__(
        self,
        identity: "Identity",
        accounts: "Accounts",
        state: "ServerState",
        log: "Logger",
        hooks: Hooks,
        session: "type[GatewaySession]",
        *,
        tls: "GatewayTLS | None" = None,
        options: "Callable[[], Options]",
        spawn: Spawn,
    ) -> None:
        super().__init__(log)
        self._accounts = accounts
        self._state = state
        self._hooks = hooks
        self._make_session = session
        self.tls = tls
        """TLS of new connections; None: clear text."""
        self._options = options
        self._spawn = spawn
        self._own_id = text_bytes(identity.id)
        block = options().gateway
        self.name = block.name
        """The name of this cluster."""
        self.remotes = {
            remote.name: Remote(remote.name, remote) for remote in block.gateways if remote.name != block.name
        }
        """The clusters of the configuration, and those that other servers tell of."""
        self.info = OwnInfo(identity, options)
        self.table = GatewayTable()
        self._ignores = False
        """Other servers tell of too many clusters."""
        self._replies = GatewayReplies(state)
        self._handshake = Handshake(self, log, options=options, spawn=spawn)
        self._solicitor = Solicitor(
            log,
            options=options,
            create=self._dialled,
            spawn=spawn,
            failed=self._attempt_failed,
            forget=self._forget,
        )
        self.health = LinkHealth("gateway", log, lambda: self.table, self._configured)

    @property
    def port(self) -> int:
        """The port that it listens on; when the options ask for a free one, the one that the kernel chose."""
        return self.info.port or self._options().gateway.port

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, pollers: "Pollers") -> None:
        """Listen for gateways, and dial other clusters after a while. Raises ServerError."""
        log, block = self._log, self._options().gateway
        sock = await listen_for_servers("gateway", block.host, max(block.port, 0))
        self._pollers = cycle(pollers.serving)
        self._replies.set_gateway(text_bytes(self.name), self._own_id)
        self._listener = AcceptLoop(sock, "Gateway", self._accepted, log)
        self.info.port = self._listener.port
        name = quote(self.name)
        log.notice(f"Gateway name is {self.name}")
        log.notice(f"Listening for gateways connections on {join_host_port(block.host, self.port)}")
        own = self.info.own_url
        advertised = f"Advertise address for gateway {name} is set to"
        log.notice(f"{advertised if block.advertise else f'Address for gateway {name} is'} {own}")
        self.info.urls.add(own)
        if self.tls and self.tls.insecure:
            log.warn(INSECURE)
        self._spawn(self._solicit())

    async def _solicit(self) -> None:
        await sleep(SOLICIT_DELAY)
        for remote in list(self.remotes.values()):
            if remote.explicit:
                self._solicitor.dial(remote)

    # -- URLs of the cluster's servers, and what they tell ---------------------------------------------------

    def add_url(self, url: str) -> None:
        """Tell other clusters of another server of this one that they can dial."""
        if self.info.urls.add(url):
            self._tell()

    def remove_url(self, url: str) -> None:
        """Undo an add_url(): the other server has gone."""
        if self.running and self.info.urls.remove(url):
            self._tell()

    def _tell(self) -> None:
        line = self.info.line()
        for gateway in self.table.inbound:
            gateway.send(line)

    def for_route(self) -> bytes:
        """Return the INFO lines for a new route."""
        return about_connected(self.info, self.table)

    def told_by_route(self, info: PeerInfo, server_id: str) -> None:
        """Handle an INFO of a route that is about a gateway (processGatewayInfoFromRoute)."""
        if info.gateway_cmd == GOSSIP:
            self.discovered(info)
        else:
            self._log.error(f"Unknown command {info.gateway_cmd} from server {server_id}")

    # -- connections -----------------------------------------------------------------------------------------

    def _create(
        self, sock: socket.socket, host: str, port: int, remote: Remote | None, url: URL | None
    ) -> Gateway:
        """Make a gateway of a connected socket, which the session owns then (createGateway)."""
        assert self._pollers
        opts = self._options()
        block = opts.gateway
        session = self._make_session(
            GATEWAY,
            sock.fileno(),
            self._hooks.next_cid(),
            next(self._pollers),
            self._state,
            self._accounts.registry,
            outbound=remote is not None,
            max_control_line=opts.max_control_line,
            max_pending=opts.max_pending * MAX_PENDING_FACTOR,
            write_deadline=block.write_deadline or opts.write_deadline,
            retries=block.write_timeout != "close",
            ping_interval=min(opts.ping_interval, MAX_PING_INTERVAL),
            ping_max=max(opts.ping_max, -1),
        )
        sock.detach()
        gateway = Gateway(session, unmapped(host), port, remote, url)
        self.open[gateway.cid] = gateway
        return gateway

    def _accepted(self, sock: socket.socket, host: str, port: int) -> None:
        """Make a gateway of an accepted socket, and send INFO. Owns `sock`."""
        if self._pollers is None:
            sock.close()
            return
        gateway = self._create(sock, host, port, None, None)
        assert gateway.session
        self._log.notice(f"{gateway} - Processing inbound gateway connection")
        if self.tls and self.tls.accepting:
            self.tls.accepting.secure(gateway.session)
        timeout = self._options().gateway.auth_timeout
        gateway.session.start(self.info.line(), expect_connect=True, auth_timeout=timeout)

    def _dialled(self, sock: socket.socket, host: str, port: int, remote: Remote, url: URL) -> None:
        """Make a gateway of a socket that is connected to another cluster. Owns `sock`."""
        if self._pollers is None or self.table.to(remote.name):
            sock.close()
            return
        gateway = self._create(sock, host, port, remote, url)
        assert gateway.session
        self._log.notice(f"{gateway} - Creating outbound gateway connection to {quote(remote.name)}")
        if tls := self._tls_to(remote):
            tls.secure(gateway.session, remote.tls_name.of(url))
        gateway.session.start(b"", expect_connect=False)
        self._hooks.dialled()

    def _tls_to(self, remote: Remote) -> "DiallingTLS | LinkTLS | None":
        return self.tls.of(remote.name) if self.tls else None

    # -- events ----------------------------------------------------------------------------------------------

    def serve(self, events: "EventTable") -> None:
        """Handle the events about gateways."""
        for event, handler in (
            (EV_CLOSED, self._on_closed),
            (EV_PONG, self._on_pong),
        ):
            events.on(event, handler, (GATEWAY,))
        self._serve(events, GATEWAY, self._handshake)

    def _on_pong(self, source: Connection | None, a: int, b: int, data: object) -> None:
        self._rank()

    def _rank(self) -> None:
        """Have groups look for a member in the nearest cluster first."""
        for rank, gateway in enumerate(self.table.nearest_first()):
            if gateway.session:
                gateway.session.set_rank(rank)
        self._hooks.ranked()

    def _on_closed(self, source: Connection | None, reason: int, num_subs: int, data: object) -> None:
        gateway = self._find(source)
        if gateway is None:
            return
        del self.open[gateway.cid]
        self._hooks.gone()
        gateway.tell_left_out(self._log)
        remote, session = gateway.remote, gateway.session
        if session:
            final = session.snapshot()
            self._count_end(final, reason)
            if reason == _TLS_FAILED and remote and gateway.url:
                self._tls_failed(session, remote, gateway.url)
            self.health.closed(gateway, final, reason)
        gateway.session = None
        name = f" - Remote: {printable(gateway.remote_name)}" if gateway.remote_name else ""
        self._log.notice(f"{gateway} - Gateway connection closed: {ClosedState(reason)}{name}")
        if self.table.remove(gateway) and gateway.outbound:
            with suppress(MemoryError):  # nothing is sent over a connection that is closed
                self._set_ways()
            self._rank()
        self._tell_watchers()
        if remote is None or gateway.no_reconnect or not self.running:
            return
        lasted = time_ns() - gateway.start >= SETTLED * SECOND
        remote.refusals = 0 if gateway.answered and lasted else remote.refusals + 1
        if not gateway.answered:
            self._attempt_failed(remote, gateway.trouble or str(ClosedState(reason)))
        self._log.debug(f"Attempting reconnect for gateway {quote(remote.name)}")
        self._solicitor.dial_again(remote)

    @staticmethod
    def _tls_failed(session: "GatewaySession", remote: Remote, url: URL) -> None:
        from gnats.core.tls.tlstransport import host_was_wrong

        if host_was_wrong(session):
            remote.tls_name.refused(url)

    def _configured(self) -> Iterator[Configured]:
        return (_named(remote) for remote in self.remotes.values() if remote.explicit)

    def _attempt_failed(self, remote: Remote, error: str) -> None:
        if remote.explicit:
            self.health.failed(_named(remote), error)

    def _forget(self, remote: Remote) -> bool:
        """Forget a cluster that cannot be dialled, unless it has dialled this server."""
        if self.table.of(remote.name):
            return False
        del self.remotes[remote.name]
        return True

    # -- what follows from handshakes ------------------------------------------------------------------------

    def is_known(self, name: str) -> bool:
        """Whether a cluster is one of the configuration, or another server has told of it."""
        return name in self.remotes

    def is_here(self, server_name: str) -> bool:
        """Whether a server of this cluster has this name."""
        return self._hooks.is_here(server_name)

    def accepted(self, gateway: Gateway, info: PeerInfo) -> None:
        """Register an inbound connection, and have it join."""
        self.table.add(gateway)
        self._join(gateway, info, about_others(self.info, self.remotes.values(), gateway.name))
        self._log_registered(gateway, f"Inbound gateway connection from {quote(gateway.name)}")
        self.discovered(info)
        self._hooks.accepted()

    def dialled(self, gateway: Gateway, info: PeerInfo) -> None:
        """Answer the peer's first INFO, register the outbound connection, and have it join."""
        remote, url = gateway.remote, gateway.url
        assert remote and url
        if not self.table.add(gateway):
            gateway.no_reconnect = True
            gateway.close(self._log, ClosedState.WRONG_GATEWAY)
            return
        connect = self.info.connect(url, tls=self._tls_to(remote) is not None)
        self._join(gateway, info, connect + self.info.line())
        self._set_ways()
        self._log.debug(f"{gateway} - Gateway connect protocol sent to {quote(gateway.name)}")
        self._log_registered(gateway, f"Outbound gateway connection to {quote(gateway.name)}")
        self._rank()
        self.informed(gateway, info)

    def _log_registered(self, gateway: Gateway, what: str) -> None:
        self._log.notice(f"{gateway} - {what} ({gateway.remote_id}) registered")
        self._tell_watchers()

    def _join(self, gateway: Gateway, info: PeerInfo, greeting: bytes) -> None:
        assert gateway.session
        gateway.session.join(
            greeting=greeting,
            cluster=text_bytes(gateway.name),
            headers=info.headers and not self._options().no_header_support,
            traces=info.proto >= TRACES_PROTO,
            command=self.info.command(),
            digests=info.interest_digests,
        )

    def _set_ways(self) -> None:
        """Tell the pollers where to send what answers mapped replies."""
        outbound = [gateway for gateway in self.table if gateway.outbound]
        self._replies.set_gateway_links(
            {name_hash(text_bytes(each.name)): each.session for each in outbound if each.session}
        )

    def set_routes(self, routes: "Iterable[Route]") -> None:
        """Tell the pollers the ways to the other servers of this cluster, one to each."""
        try:
            self._replies.set_gateway_routes(
                {name_hash(text_bytes(route.remote_id)): route.session for route in routes if route.session}
            )
        except MemoryError:  # answers go by interest to servers that are not known
            self._log.error("Out of memory, ways to other servers of this cluster are not changed")

    def answered(self, gateway: Gateway) -> None:
        """Note that the peer of an outbound connection has taken the CONNECT."""
        assert gateway.remote
        gateway.answered = True
        self.health.reached(_named(gateway.remote))
        self._tell_watchers()

    def marked(self, gateway: Gateway, mark: str) -> None:
        """Note a mark of the peer (gnats.gateways.mesh)."""
        gateway.mark = mark
        self._tell_watchers()

    def refused(self, gateway: Gateway) -> None:
        """Tell of a peer whose credentials are refused."""
        self._hooks.refused(gateway)

    def informed(self, gateway: Gateway, info: PeerInfo) -> None:
        """Use what the peer of an outbound connection says of its cluster; tell this cluster."""
        assert gateway.remote
        if info.gateway_urls:
            gateway.remote.replace_discovered(info.gateway_urls)
        line = self.info.gossip(gateway.name, info.gateway_urls, to_route=True)
        if line != gateway.told:
            gateway.told = line
            self._hooks.tell_cluster(line)

    def discovered(self, info: PeerInfo) -> None:
        """Dial a cluster that a server tells of, unless it is known (processImplicitGateway)."""
        name = info.gateway
        if name == self.name:
            return
        if remote := self.remotes.get(name):
            remote.add(info.gateway_urls)
            return
        if sum(not known.explicit for known in self.remotes.values()) >= MOST_DISCOVERED:
            if not self._ignores:
                self._ignores = True
                why = f"{MOST_DISCOVERED} others were discovered before"
                self._log.warn(f"Gateway {quote(name)} is not dialled: {why}")
            return
        remote = Remote(name)
        remote.add(info.gateway_urls)
        if remote.hosts:
            self.remotes[name] = remote
            self._solicitor.dial(remote)


def _named(remote: Remote) -> Configured:
    """Return how a cluster of the configuration is named to operators."""
    return Configured(",".join(remote.configured), "")
