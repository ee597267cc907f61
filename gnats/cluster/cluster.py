"""A server's part in a cluster: listens for routes, dials others, and joins what the other modules decide."""

import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from gnats.cluster.client_urls import ClientURLs, own_urls
from gnats.cluster.compression import negotiates
from gnats.cluster.connections import MAX_PENDING_FACTOR, Connections
from gnats.cluster.gossip import forward_new_route, implicit_targets
from gnats.cluster.handshake import Handshake, Spawn, delays_info
from gnats.cluster.info import OwnInfo, PeerInfo
from gnats.cluster.link_health import Configured, LinkHealth
from gnats.cluster.name import ClusterName
from gnats.cluster.pinning import Pinning
from gnats.cluster.route import Route, Target, ping_limits
from gnats.cluster.routes import Added, Routes, upgrade_to_solicited
from gnats.cluster.solicit import Solicitor
from gnats.cluster.tls_name import TLSName
from gnats.connection.closed_state import ClosedState
from gnats.core.net.connection import Connection
from gnats.core.runtime.inbox import EV_BEGUN, EV_CLOSED, EV_PONG
from gnats.core.runtime.kinds import ROUTER
from gnats.go.text import join_host_port, printable, quote
from gnats.go.url import URL
from gnats.runtime.accept import AcceptLoop, listen_for_servers
from gnats.runtime.reported import unmapped
from gnats.system.interfaces import interface_addresses

if TYPE_CHECKING:
    from gnats.accounts.accounts import Accounts
    from gnats.cluster.reload import ClusterReload
    from gnats.core.links.route_session import RouteSession
    from gnats.core.runtime.state import ServerState
    from gnats.log.logger import Logger
    from gnats.nkeys.identity import Identity
    from gnats.options.options import Options
    from gnats.runtime.dispatch import EventTable
    from gnats.runtime.pollers import Pollers
    from gnats.tls.links import LinkTLS

INSECURE = (
    "TLS certificate chain and hostname of solicited routes will not be verified. DO NOT USE IN PRODUCTION!"
)
_TLS_FAILED = ClosedState.TLS_HANDSHAKE_ERROR


@dataclass(frozen=True, slots=True)
class ToldPort:
    """A port whose address the servers of a cluster tell each other, for leaf nodes or for gateways."""

    url: Callable[[], str] = str
    """Return this server's address; empty without one that is told."""
    added: Callable[[str], object] = len
    """Another server has this address."""
    removed: Callable[[str], object] = len
    """A server with this address has gone."""


def _ignore(info: PeerInfo, server_id: str) -> None:
    """Do nothing with an INFO."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the cluster asks of its server."""

    renamed: Callable[[str, bool], object]
    """Use a new name of the cluster, which some server has made up or not."""
    urls_changed: Callable[[], object]
    """Tell clients the URLs of the cluster, which have changed."""
    next_cid: Callable[[], int]
    """Return an unused connection id."""
    gone: Callable[[], object]
    """A connection has gone."""
    leafs: ToldPort = ToldPort()
    """The port for leaf nodes."""
    gateway: ToldPort = ToldPort()
    """The port for gateways."""
    about_gateway: Callable[[PeerInfo, str], object] = _ignore
    """Handle an INFO that is about a gateway, from a server with this id."""
    gateways: Callable[[], bytes] = bytes
    """Return the INFO lines that tell a new server of gateways."""
    refused: Callable[[Route], object] = bool
    """Tell of a peer whose credentials are refused."""


class Cluster(Connections[Route]):
    """The routes of a server. `options` returns its current options; `session` makes sessions of sockets."""

    def __init__(
        self,
        identity: "Identity",
        accounts: "Accounts",
        state: "ServerState",
        log: "Logger",
        hooks: Hooks,
        session: "type[RouteSession]",
        *,
        tls: "LinkTLS | None" = None,
        options: "Callable[[], Options]",
        spawn: Spawn,
    ) -> None:
        super().__init__(log)
        self._own_id = identity.id
        self._accounts = accounts
        self._state = state
        self._hooks = hooks
        self._make_session = session
        self.tls = tls
        """TLS of new connections; None: clear text."""
        self._tls_name = TLSName()
        self._options = options
        cluster = options().cluster
        self.urls = ClientURLs()
        self.name = ClusterName(lambda: options().cluster, hooks.renamed)
        self.urls.hidden = cluster.no_advertise
        self.info = OwnInfo(
            identity, options, self.name, lambda: self.urls.own, hooks.leafs.url, hooks.gateway.url
        )
        self.routes = Routes(cluster.pool_size, cluster.accounts)
        self._handshake = Handshake(
            identity.id,
            identity.name,
            self.info,
            self.name,
            self.routes,
            self,
            log,
            options=options,
            spawn=spawn,
        )
        self._solicitor = Solicitor(
            log,
            options=options,
            pinned=lambda: self.routes.pinned,
            create=self._dialled,
            spawn=spawn,
            failed=self._attempt_failed,
        )
        self.health = LinkHealth("route", log, lambda: self.routes, self._configured)
        self.pinning = Pinning(self.routes, log, has_account=self.has_account)
        self._remote_urls: dict[str, list[str]] = {}
        """The client URLs of remote servers, by id."""
        self._told_ports: dict[str, list[tuple[ToldPort, str]]] = {}
        """Their addresses for leaf nodes and gateways."""

    @property
    def port(self) -> int:
        """The port that it listens on; when the options ask for a free one, the one that the kernel chose."""
        return self.info.port or self._options().cluster.port

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self, pollers: "Pollers", client_port: int) -> socket.socket:
        """Listen for routes, and dial those of the options. Return the listening socket.

        Raises ServerError.
        """
        opts, log = self._options(), self._log
        cluster = opts.cluster
        log.notice(f"Cluster name is {self.name}")
        if self.name.generated:
            log.warn("Cluster name was dynamically generated, consider setting one")
        sock = await listen_for_servers("router", cluster.host, max(cluster.port, 0))
        self._pollers = cycle(pollers.serving)
        self._listener = AcceptLoop(sock, "Route", self._accepted, log)
        self.info.port = self._listener.port
        log.notice(f"Listening for route connections on {join_host_port(cluster.host, self.port)}")
        self._warn_of_insecure_tls()
        self.urls.own = own_urls(opts, client_port)
        _, port = self.info.address()
        self._solicitor.to_self = frozenset((each, port) for each in interface_addresses())
        self._tls_name.save(cluster.routes)
        self._solicitor.solicit_routes()
        return sock

    def use_tls(self, tls: "LinkTLS | None") -> None:
        """Use other certificates and rules of TLS for new connections; established ones keep theirs."""
        self.tls = tls
        self._warn_of_insecure_tls()

    def _warn_of_insecure_tls(self) -> None:
        if self.tls and self.tls.insecure:
            self._log.warn(INSECURE)

    def tell(self, line: bytes) -> None:
        """Send an INFO line over one connection to each other server."""
        for route in self.routes.one_of_each():
            route.send(line)

    def lame_duck(self) -> None:
        """Tell the other servers not to send clients here, and tell clients the others only."""
        self.tell(self.info.line(ldm=True))
        self.urls.lame_duck()

    # -- connections -----------------------------------------------------------------------------------------

    def _accepted(self, sock: socket.socket, host: str, port: int) -> None:
        self._create(sock, host, port, None)

    def _dialled(self, sock: socket.socket, host: str, port: int, target: Target) -> None:
        self._create(sock, host, port, target)

    def _create(self, sock: socket.socket, host: str, port: int, target: Target | None) -> None:
        """Make a route of a connected socket, and send its first lines (createRoute). Owns `sock`."""
        if self._pollers is None:
            sock.close()
            return
        opts = self._options()
        cluster = opts.cluster
        session = self._make_session(
            ROUTER,
            sock.fileno(),
            self._hooks.next_cid(),
            next(self._pollers),
            self._state,
            self._accounts.registry,
            max_control_line=opts.max_control_line,
            max_pending=opts.max_pending * MAX_PENDING_FACTOR,
            write_deadline=cluster.write_deadline or opts.write_deadline,
            retries=cluster.write_timeout != "close",
            **ping_limits(opts),
            negotiates=negotiates(cluster.compression.mode),
        )
        sock.detach()
        if self.tls:
            self.tls.secure(session, self._tls_name.of(target.url) if target else "")
        self.open[session.cid] = Route(session, unmapped(host), port, target)
        if target is None:
            timeout = cluster.auth_timeout if cluster.username else 0.0
            session.start(self.info.initial(), expect_connect=True, auth_timeout=timeout)
        else:
            lines = self.info.connect(target.url)
            if not delays_info(target.account, opts):
                lines += self.info.initial(account=target.account, gossip_mode=target.gossip_mode)
            session.start(lines, expect_connect=False)

    # -- events ----------------------------------------------------------------------------------------------

    def serve(self, events: "EventTable") -> None:
        """Handle the events about routes."""
        for event, handler in (
            (EV_BEGUN, self._on_begun),
            (EV_CLOSED, self._on_closed),
            (EV_PONG, self._on_pong),
        ):
            events.on(event, handler, (ROUTER,))
        self._serve(events, ROUTER, self._handshake)

    def _on_begun(self, source: Connection | None, a: int, b: int, data: object) -> None:
        route, log = self._find(source), self._log
        if route:
            if route.solicited:
                log.debug(f"{route} - Route connect msg sent")
            log.notice(f"{route} - Route connection created")

    def _on_pong(self, source: Connection | None, a: int, b: int, data: object) -> None:
        route = self._find(source)
        if route is None:
            return
        route.follow_rtt(self._options().cluster.compression)
        if route.dial_next:
            target, route.dial_next = route.dial_next, None
            self._solicitor.dial(target)

    def _on_closed(self, source: Connection | None, reason: int, num_subs: int, data: object) -> None:
        route = self._find(source)
        if route is None:
            return
        del self.open[route.cid]
        self._hooks.gone()
        route.tell_left_out(self._log)
        if route.session:
            final = route.session.snapshot()
            self._count_end(final, reason)
            if reason == _TLS_FAILED and route.url:
                self._tls_failed(route.session, route.url)
            self.health.closed(route, final, reason, route.hint or route.trouble)
        route.session = None
        remote = f" - Remote: {printable(route.remote_name)}" if route.remote_name else ""
        self._log.notice(f"{route} - Router connection closed: {ClosedState(reason)}{remote}")
        self.forget(route)
        self._note_attempt(route, reason)
        if self._pollers is not None and not route.no_reconnect:
            self._reconnect(route)

    def _tls_failed(self, session: "RouteSession", url: URL) -> None:
        from gnats.core.tls.tlstransport import host_was_wrong

        if host_was_wrong(session):
            self._tls_name.refused(url)

    def _configured(self) -> Iterator[Configured]:
        """Yield the routes of the configuration, once more for each account with routes of its own."""
        for account in ("", *self.routes.pinned):
            yield from (Configured(url.host, account) for url in self._options().cluster.routes)

    def _attempt_failed(self, target: Target, error: str) -> None:
        link = Configured(target.url.host, target.account)
        routes = (each for each in self.routes if each.account == target.account and not each.closing)
        if any(route.url and route.url.host == target.url.host for route in routes):
            self.health.reached(link)  # the other server has dialled, and cannot be dialled itself
        else:
            self.health.failed(link, error)

    def _note_attempt(self, route: Route, reason: int) -> None:
        """Note the end of a connection to a configured route: an attempt has failed, unless it has joined.

        A peer that refuses may do so afterwards.
        """
        if not route.explicit or route.url is None or self._pollers is None:
            return
        if route.hint:  # the port is not for routes: whatever joined will not last
            self.health.failed(Configured(route.url.host, route.account), route.hint)
            return
        if route.joined and not route.trouble:
            return
        others = self.routes.to(route.remote_id, route.account)
        if route.to_self or not all(other.closing for other in others):  # it needs no connection
            self.health.reached(Configured(route.url.host, route.account))
        else:
            self._attempt_failed(route.target(), route.trouble or str(ClosedState(reason)))

    def forget(self, route: Route) -> None:
        """Remove a route from the table, and the peer with its last one (removeRoute). Idempotent."""
        removed = self.routes.remove(route)
        self._tell_watchers()
        if not removed.last:
            return
        if urls := self._remote_urls.pop(route.remote_id, None):
            self._show(changed=self.urls.remove(urls))
        for port, url in self._told_ports.pop(route.remote_id, ()):
            port.removed(url)
        if route.no_pool and self._pollers is not None and route.url:
            if self.routes.pool_size > 1:
                self._solicitor.dial(route.target(account=""))
            for account in self._options().cluster.accounts:
                self._solicitor.dial(route.target(account=account))

    def _reconnect(self, route: Route) -> None:
        """Dial the peer of a lost route again if this server has dialled it (reconnect)."""
        if not (route.solicited or route.retry) or route.url is None:
            return
        shown, log = quote(route.url.redacted()), self._log
        if not route.account and self._options().cluster.pool_size < 1 and route.remote_id in self.routes:
            for other in self.routes.to(route.remote_id) if route.solicited else ():
                upgrade_to_solicited(other, route.url, explicit=route.explicit)
            connected = f"already connected to {quote(route.remote_id)}"
            log.debug(f"Not attempting reconnect for solicited route, {connected}")
        elif route.to_self:
            log.debug(f"Detected route to self, ignoring {shown}")
        else:
            log.debug(f"Attempting reconnect for solicited route {shown}")
            self._solicitor.dial_again(route)

    # -- what follows from handshakes ------------------------------------------------------------------------

    def has_account(self, name: str) -> bool:
        """Whether the server has this account."""
        return name in self._accounts

    def make_room(self, route: Route) -> None:
        """Forget those connections to the route's peer that are being closed: it takes the place of one."""
        for other in self.routes.to(route.remote_id, route.account):
            if other.closing:
                self.forget(other)

    def name_changed(self, remote_id: str) -> None:
        """Close the routes to all but this remote: it has given this server a new cluster name."""
        for route in list(self.routes):
            if route.remote_id != remote_id:
                route.close(self._log, ClosedState.CLUSTER_NAME_CONFLICT)

    def joined(self, route: Route, info: PeerInfo, added: Added, *, dialled: bool) -> None:
        """Tell the other servers and the clients of the route's peer, if it is new."""
        if route.explicit and route.url:
            self.health.joined(Configured(route.url.host, route.account))
        if added.forward:
            forward_new_route(self.routes, route, info, dialled=dialled)
        if route.account:
            self.pinning.registered(route)
        elif added.first:
            urls = self._remote_urls[route.remote_id] = list(filter(None, info.connect_urls))
            self._show(changed=self.urls.add(urls))
            self._add_ports(route.remote_id, info)
        self._tell_watchers()

    def about_gateways(self) -> bytes:
        """Return the INFO lines that tell a new server of gateways."""
        return self._hooks.gateways()

    def _add_ports(self, remote_id: str, info: PeerInfo) -> None:
        leaf_url = info.leafnode_urls[0] if len(info.leafnode_urls) == 1 else ""
        told = (self._hooks.leafs, leaf_url), (self._hooks.gateway, info.gateway_url)
        self._told_ports[remote_id] = ports = [(port, url) for port, url in told if url]
        for port, url in ports:
            port.added(url)

    def refused(self, route: Route) -> None:
        """Tell of a peer whose credentials are refused."""
        self._hooks.refused(route)

    def informed(self, route: Route, info: PeerInfo) -> None:
        """Handle a later INFO of a route."""
        if mark := info.sent.get("nonce"):
            route.mark = str(mark)
            self._tell_watchers()
        if info.route_acc_add_reqid:
            self.pinning.informed(route, info)
        elif info.gateway:
            self._hooks.about_gateway(info, route.remote_id)
        elif route.remote_id and route.remote_id != info.server_id:
            try:
                targets = implicit_targets(
                    info, self._own_id, self.routes, self._options().cluster, no_pool=route.no_pool
                )
            except ValueError as exc:
                self._log.error(f"Error parsing URL from INFO: {exc}")
                return
            for target in targets:
                self._solicitor.dial(target)
        elif info.ldm:
            if urls := self._remote_urls.pop(route.remote_id, None):
                self._show(changed=self.urls.remove(urls))
        else:
            self._reloaded(route, info)

    def _reloaded(self, route: Route, info: PeerInfo) -> None:
        """Use what the peer has changed by a reload: its permissions, and the URLs of its client port."""
        assert route.peer
        before, now = route.peer.sent, info.sent
        exports = now.get("export") != before.get("export")
        for member in "import", "export":
            before[member] = now.get(member)
        if exports and route.session:
            route.session.announce_again()
        if route.remote_id in self._remote_urls:
            was, will = self._remote_urls[route.remote_id], list(filter(None, info.connect_urls))
            self._remote_urls[route.remote_id] = will
            added = self.urls.add(will)
            self._show(changed=self.urls.remove(was) or added)

    # -- reload ----------------------------------------------------------------------------------------------

    def reload(self, old: "Options", new: "Options") -> "ClusterReload":
        """Begin a reload of the options: see ClusterReload."""
        from gnats.cluster.reload import ClusterReload

        return ClusterReload(self, old, new, self._log, self._hooks.renamed)

    def hide_urls(self, *, hidden: bool) -> None:
        """Tell clients no URLs, or tell them again."""
        self._show(changed=self.urls.hide(hidden=hidden))

    def solicit(self, urls: Iterable[URL], accounts: Iterable[str]) -> None:
        """Dial routes of the configuration, for each account; "" stands for the pool."""
        urls = tuple(urls)
        self._tls_name.save(urls)
        self._solicitor.solicit(urls, accounts)

    async def check_again(self, route: Route) -> None:
        """Close a route whose peer has not the user and the password of the options, which have changed."""
        await self._handshake.check_again(route)

    def _show(self, *, changed: bool) -> None:
        if changed:
            self._hooks.urls_changed()
