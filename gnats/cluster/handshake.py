"""Answer a route's CONNECT and INFO (processRouteConnect, processRouteInfo): refuse it, or register it."""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gnats.auth.connect import trace_connect
from gnats.cluster.certificates import Wanted
from gnats.cluster.compression import UnknownModeError, choose_mode, negotiates
from gnats.cluster.info import TRACES_PROTO, OwnInfo, PeerConnect, PeerInfo
from gnats.cluster.link_health import wrong_port
from gnats.cluster.login import Login
from gnats.cluster.name import ClusterName
from gnats.cluster.route import Route
from gnats.cluster.routes import Added, Duplicate, Refused, Routes
from gnats.connection.closed_state import ClosedState
from gnats.core.auth.permissions import compile_permissions
from gnats.go.json import JSONError
from gnats.go.text import join_host_port, quote, text_bytes
from gnats.go.url import URL
from gnats.options.options import Options
from gnats.options.values.auth import Permissions
from gnats.options.values.cluster import NO_CLUSTER, RESERVED, S2_AUTO, S2_UNCOMPRESSED, ClusterOptions

if TYPE_CHECKING:
    from asyncio import Task

    from gnats.core.auth.permissions import Permissions as Compiled
    from gnats.log.logger import Logger

Spawn = Callable[[Coroutine[Any, Any, None]], "Task[None]"]


class Joining(Protocol):
    """What follows from handshakes; the cluster does it."""

    def name_changed(self, remote_id: str) -> None:
        """Close the routes to all but this remote: it has given this server a new cluster name."""

    def joined(self, route: Route, info: PeerInfo, added: Added, *, dialled: bool) -> None:
        """Tell others of the route's peer, if it is new. `dialled`: this server has dialled it."""

    def about_gateways(self) -> bytes:
        """Return the INFO lines that tell a new server of gateways."""

    def informed(self, route: Route, info: PeerInfo) -> None:
        """Handle an INFO of a registered route; the route goes on when this returns."""

    def refused(self, route: Route) -> None:
        """Tell of a peer whose credentials are refused."""

    def has_account(self, name: str) -> bool: ...
    def make_room(self, route: Route) -> None:
        """Forget those connections to the route's peer that are being closed."""


class Handshake:
    """Answers the CONNECT and INFO of routes. `options` returns the server's current options."""

    def __init__(
        self,
        own_id: str,
        own_name: str,
        info: OwnInfo,
        name: ClusterName,
        routes: Routes,
        cluster: Joining,
        log: "Logger",
        *,
        options: Callable[[], Options],
        spawn: Spawn,
    ) -> None:
        self._own_id = own_id
        self._own_name = own_name
        self._info = info
        self._name = name
        self._routes = routes
        self._cluster = cluster
        self._log = log
        self._options = options
        self._spawn = spawn
        self._login = Login(log, lambda: wanted(options().cluster))

    # -- CONNECT ---------------------------------------------------------------------------------------------

    def process_connect(self, route: Route, arg: bytes) -> None:
        """Answer a CONNECT: accept it, or close the route."""
        log = self._log
        trace_connect(route, arg, log)
        try:
            route.connect = PeerConnect.read(arg)
        except JSONError as exc:
            route.malformed(self._log, exc)
            return
        good = self._login.check(route)
        if good is None:
            checking = self._spawn(self._check_hash(route, arg))
            self._login.watch(route, checking, partial(self._refuse, route))
        else:
            self._authenticated(route, arg, good)

    async def _check_hash(self, route: Route, arg: bytes) -> None:
        self._authenticated(route, arg, await self._login.check_hash(route))

    async def check_again(self, route: Route) -> None:
        """Close a route whose peer has not the user and the password of the options, which have changed."""
        good = self._login.check(route)
        if good is None:
            good = await self._login.check_hash(route)
        if not good:
            route.no_reconnect = True
            self._refuse(route)

    def _refuse(self, route: Route) -> None:
        route.violation(self._log)
        self._cluster.refused(route)

    def _authenticated(self, route: Route, arg: bytes, good: bool) -> None:
        connect, log = route.connect, self._log
        if route.session is None or route.leaving:  # gone while its password was checked
            return
        if not good or connect.account or connect.new_account:
            self._refuse(route)
            return
        route.connected = True
        if connect.lang:  # a client
            error = "attempted to connect to route port"
            route.refuse(log, ClosedState.WRONG_PORT, error)
            log.error(f"{route} - {error}")
            return
        try:
            connect.read_cluster(arg)
        except JSONError as exc:
            route.malformed(self._log, exc)
            return
        if connect.gateway:
            gateway = f"Rejecting connection from gateway {quote(connect.gateway)} on the Route port"
            self._reject(route, ClosedState.WRONG_GATEWAY, gateway, "wrong gateway")
            return
        if connect.cluster == NO_CLUSTER:
            reserved = f"Rejecting connection, cluster name {quote(NO_CLUSTER)} is reserved"
            self._reject(route, ClosedState.CLUSTER_NAME_CONFLICT, reserved, RESERVED)
            return
        ours = str(self._name)
        agreed = self._name.agrees(connect.cluster, generated=connect.generated)
        if agreed is False:
            names = f"{quote(connect.cluster)} does not match {quote(ours)}"
            conflict = f"Rejecting connection, cluster name {names}"
            why = "cluster name from remote server conflicts"
            self._reject(route, ClosedState.CLUSTER_NAME_CONFLICT, conflict, why)
            return
        if agreed is None:
            self._cluster.name_changed(connect.name)
        if route.peer is None:  # a second CONNECT may not move the route in the table
            route.remote_id = connect.name
        route.session.accept_connect(verbose=connect.verbose)

    def _reject(self, route: Route, reason: ClosedState, error: str, why: str) -> None:
        self._log.error(f"{route} - {error}")
        route.reject(self._log, reason, error, why)

    # -- INFO ------------------------------------------------------------------------------------------------

    def process_info(self, route: Route, arg: bytes) -> None:
        """Answer an INFO: the first one registers the route or closes it."""
        log = self._log
        if route.session is None or route.leaving:
            return
        try:
            info = PeerInfo.read(arg)
        except JSONError as exc:
            route.malformed(self._log, exc)
            return
        if route.solicited and route.peer is None and (kind := info.kind_of_port):
            route.hint = wrong_port(route.host, route.port, kind, "routes")
        if info.server_id == self._own_id:
            route.to_self = True
            route.close(log, ClosedState.DUPLICATE_ROUTE)
            return
        if info.cluster:
            generated = info.cluster_dynamic
            agreed = self._name.agrees(info.cluster, generated=generated, keep_generated=True)
            if agreed is False:
                route.close(log, ClosedState.CLUSTER_NAME_CONFLICT)
                return
            if agreed is None:
                self._cluster.name_changed(info.server_id)
        if route.peer:
            self._cluster.informed(route, info)
            route.session.resume()
            return
        if not route.solicited and info.server_name == self._own_name:
            log.error(f"{route} - Remote server has a duplicate name: {quote(info.server_name)}")
            route.close(log, ClosedState.DUPLICATE_SERVER_NAME)
            return
        if not route.negotiated and self._compresses(route, info):
            return  # another INFO follows
        self._register(route, info)

    def _compresses(self, route: Route, info: PeerInfo) -> bool:
        """Agree whether to compress (negotiateRouteCompression). Return whether registering has to wait."""
        configured, session = self._options().cluster.compression, route.session
        assert session
        route.negotiated = True
        try:
            mode = choose_mode(configured.mode, info.compression)
        except UnknownModeError as exc:
            route.refuse(self._log, ClosedState.PROTOCOL_VIOLATION, str(exc))
            return True
        if mode == S2_AUTO:
            mode = route.s2_level(configured.rtt_thresholds)
        route.compression = mode
        if not negotiates(mode):
            return False
        session.compress(
            self._info.initial(account=route.account, compression=mode),
            solicited=route.solicited,
            uncompressed=mode == S2_UNCOMPRESSED,
        )
        return True

    def _register(self, route: Route, info: PeerInfo) -> None:
        log, dialled, session = self._log, route.solicited, route.session
        assert session
        route.peer, route.remote_id = info, info.server_id
        if route.url is None:
            route.url = URL("nats-route", host=join_host_port(info.host, info.port), path="/")
        if not info.ip:
            info.ip = f"nats-route://{join_host_port(route.host, info.port)}/"
        if dialled:
            info.route_account = route.account  # for those whom this server tells of the peer
        else:
            route.account = info.route_account
        account = route.account
        added: Added | Refused | Duplicate
        if account and not self._cluster.has_account(account):
            missing = f"Unable to lookup account {quote(account)}: account missing"
            self._refused(route, ClosedState.MISSING_ACCOUNT, missing)
            return
        if self._routes.rejecting:
            self._duplicate(route)
            return
        self._cluster.make_room(route)
        added = self._routes.add(route, info)
        if isinstance(added, Refused):
            self._refused(route, ClosedState.PROTOCOL_VIOLATION, added.error)
            return
        if isinstance(added, Duplicate):
            if added.full:
                extra = f"Route pool size reached, closing extra connection to {quote(info.server_id)}"
                log.debug(f"{route} - {extra}")
            self._duplicate(route)
            return
        if not added.full and dialled:
            route.dial_next = route.target(gossip_mode=route.gossip_mode)
        about_gateways = self._cluster.about_gateways() if added.first and not account else b""
        self._join(route, info, about_gateways, dialled=dialled)
        self._cluster.joined(route, info, added, dialled=dialled)
        route.gossip_mode = 0
        of = f" for account {quote(account)}" if account else ""
        log.debug(f"{route} - Registering remote route {quote(info.server_id)}{of}")

    def _refused(self, route: Route, reason: ClosedState, error: str) -> None:
        route.refuse(self._log, reason, error)
        self._duplicate(route)

    def _duplicate(self, route: Route) -> None:
        self._log.debug(f"{route} - Detected duplicate remote route {quote(route.remote_id)}")
        route.close(self._log, ClosedState.DUPLICATE_ROUTE)

    def _join(self, route: Route, info: PeerInfo, greeting: bytes, *, dialled: bool) -> None:
        opts, routes = self._options(), self._routes
        if dialled and delays_info(route.account, opts):
            own = self._info.initial(
                account=route.account,
                index=max(route.index, 0),
                gossip_mode=route.gossip_mode,
                compression=route.compression,
            )
            greeting = own + greeting
        assert route.session
        route.session.join(
            greeting=greeting,
            pool_index=-1 if route.no_pool else max(route.index, 0),
            pool_size=routes.pool_size,
            account=text_bytes(route.account),
            pinned=tuple(map(text_bytes, routes.pinned)),
            headers=info.headers and not opts.no_header_support,
            traces=info.proto >= TRACES_PROTO,
            origins=info.origins,
            permissions=compiled_permissions(opts),
            measure=route.dial_next is not None,
            digests=info.interest_digests,
            passes=info.group_passing,
        )


def wanted(cluster: ClusterOptions) -> Wanted:
    """Return what a cluster asks of servers that connect."""
    return Wanted(cluster.username, cluster.password, cluster.tls, cluster.routes)


def delays_info(account: str, opts: Options) -> bool:
    """Whether the server that dials sends its INFO only after the peer's (routeShouldDelayInfo)."""
    cluster = opts.cluster
    return negotiates(cluster.compression.mode) or (not account and cluster.pool_size >= 1)


def compiled_permissions(opts: Options) -> "Compiled | None":
    """Compile the cluster's permissions; the start has checked that they are valid."""
    if not (permissions := opts.cluster.permissions):
        return None
    return compile_permissions(Permissions(publish=permissions.imports, subscribe=permissions.exports))
