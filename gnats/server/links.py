"""A server's connections to other servers: routes, leaf nodes and gateways, and what they have in common."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from gnats.clock import sleep
from gnats.core.net.connection import Connection
from gnats.go.text import quote
from gnats.options.values.auth import SYSTEM_ACCOUNT

if TYPE_CHECKING:
    from asyncio import Task

    from gnats.accounts.account import Account
    from gnats.accounts.accounts import Accounts
    from gnats.accounts.internal_clients import InternalClients
    from gnats.auth.authenticator import Authenticator
    from gnats.client.session import Session
    from gnats.cluster.cluster import Cluster
    from gnats.cluster.info import PeerInfo
    from gnats.cluster.link_connection import LinkConnection
    from gnats.cluster.route import Route
    from gnats.core.runtime.state import ServerState
    from gnats.events.events import Events
    from gnats.gateways.gateway import Gateway
    from gnats.gateways.gateways import Gateways
    from gnats.jetstream.control.jetstream import JetStream
    from gnats.leafnodes.leaf import Leaf
    from gnats.leafnodes.leafnodes import LeafNodes
    from gnats.log.logger import Logger
    from gnats.nkeys.identity import Identity
    from gnats.operator.mode import OperatorMode
    from gnats.options.leafnode_changes import LeafNodeChanges
    from gnats.options.options import Options
    from gnats.options.values.gateway import GatewayOptions
    from gnats.runtime.dispatch import EventTable
    from gnats.runtime.pollers import Pollers
    from gnats.tls.gateways import GatewayTLS
    from gnats.tls.leafs import LeafTLS
    from gnats.tls.links import LinkTLS


class Owner(Protocol):
    """The server, as its links see it."""

    opts: "Options"

    @property
    def links(self) -> "Links": ...
    @property
    def identity(self) -> "Identity": ...
    @property
    def accounts(self) -> "Accounts": ...
    @property
    def state(self) -> "ServerState": ...
    @property
    def log(self) -> "Logger": ...
    @property
    def internal_clients(self) -> "InternalClients": ...
    @property
    def auth(self) -> "Authenticator": ...
    @property
    def operator_mode(self) -> "OperatorMode | None": ...
    @property
    def events(self) -> "Events | None": ...
    @property
    def pollers(self) -> "Pollers | None": ...
    @property
    def jetstream(self) -> "JetStream | None": ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> "Task[None]": ...
    def rename_cluster(self, name: str, generated: bool) -> None: ...
    def describe(self) -> None: ...
    def update_urls(self) -> None: ...
    def connection_gone(self) -> None: ...
    def keep_closed(self, session: "Session") -> None: ...


class Links:
    """The routes, leaf nodes and gateways of a server; each kind may be missing."""

    def __init__(self, server: Owner, opts: "Options") -> None:
        self._server = server
        self._events: EventTable | None = None
        self.cluster = _make_cluster(server) if opts.cluster.port else None
        self.leafs = _make_leafs(server) if opts.leafnodes.configured else None
        self.gateways = _make_gateways(server) if opts.gateway.configured else None
        parts: tuple[Cluster | LeafNodes | Gateways | None, ...] = self.cluster, self.leafs, self.gateways
        self._parts = [part for part in parts if part is not None]
        self._watched = False
        if self.cluster and self.gateways:
            cluster, gateways = self.cluster, self.gateways
            cluster.watchers.add(lambda: gateways.set_routes(cluster.routes.one_of_each()))

    def __bool__(self) -> bool:
        """Whether the server may have connections to others."""
        return bool(self._parts)

    def leaf_names_requesters(self, cid: int) -> bool:
        """Whether the other server of a leaf node in the system account writes Nats-Request-Info.

        It does for the JetStream API of a domain that both servers are in. Otherwise its clients could write
        that header themselves, and name any account here.
        """
        leaf = self.leafs.open.get(cid) if self.leafs else None
        if leaf is None:
            return False
        same_domain = leaf.peer_domain == self._server.opts.jetstream.domain
        return same_domain and leaf.remote_account in (leaf.account.name, SYSTEM_ACCOUNT)

    def tables(self) -> list[dict[int, Any]]:
        """Return the tables of all connections, by id, which change with them."""
        return [part.open for part in self._parts]

    def find(self, cid: int) -> "Route | Leaf | Gateway | None":
        """Return the connection with an id."""
        return next((part.open[cid] for part in self._parts if cid in part.open), None)

    def alternates(self) -> list[str]:
        """Return the names of the other clusters that gateways lead to, the nearest first."""
        return [gateway.name for gateway in self.gateways.table.nearest_first()] if self.gateways else []

    @property
    def connected(self) -> bool:
        """Whether there are connections."""
        return any(part.connected for part in self._parts)

    def connections(self) -> list[Connection]:
        """Return the data plane's sides of all connections."""
        return [each for part in self._parts for each in part.connections()]

    def serve(self, events: "EventTable") -> None:
        """Handle the events about these connections."""
        self._events = events
        for part in self._parts:
            part.serve(events)

    async def start(self, pollers: "Pollers") -> None:
        """Listen for gateways, whose address routes tell of, and for leaf nodes. Raises ServerError."""
        if self.gateways:
            await self.gateways.start(pollers)
        if self.leafs:
            await self.leafs.start(pollers)

    def solicit(self) -> None:
        """Dial the remotes of leaf nodes; routes and gateways are dialled by themselves. Watch all links."""
        if self.leafs:
            self.leafs.solicit()
        self.watch()

    def watch(self) -> None:
        """Begin to check again and again whether links are slow, if there are parts. Idempotent."""
        if self._parts and not self._watched:
            self._watched = True
            self._server.spawn(self._watch())

    async def _watch(self) -> None:
        from gnats.cluster.link_health import CHECK_INTERVAL

        while True:
            await sleep(CHECK_INTERVAL)
            for part in self._parts:
                part.health.check()

    async def reload_leafs(self, changes: "LeafNodeChanges", tls: "LeafTLS | None") -> None:
        """Apply changes of the options of leaf nodes. A server may get its first remote by them."""
        from gnats.leafnodes.reload import reload_leafnodes

        server = self._server
        if self.leafs is None:
            assert self._events and server.pollers
            self.leafs = _make_leafs(server)
            self._parts.append(self.leafs)
            self.leafs.serve(self._events)
            await self.leafs.start(server.pollers)
            self.watch()
        self.leafs.tls = tls
        reload_leafnodes(self.leafs, changes, server.log)

    def reload_gateways(self, old: "GatewayOptions", tls: "GatewayTLS | None") -> None:
        """Apply changes of the options of gateways, which were `old`."""
        if self.gateways:
            from gnats.gateways.reload import reload_gateways

            server = self._server
            reload_gateways(self.gateways, old, server.opts.gateway, tls, server.log)

    def leaf_joined(self, account: "Account") -> None:
        """Tell other clusters, if there are any, that an account has a leaf node (sendLeafNodeConnect)."""
        if self.gateways and self._server.events:
            self._server.events.leafnode_connected(account.name)

    def tell_of_leafs(self) -> None:
        """Tell a new cluster of the accounts with leaf nodes (ensureGWsInterestOnlyForLeafNodes)."""
        accounts = dict.fromkeys(leaf.account for leaf in self.leafs.table) if self.leafs else ()
        for account in accounts:
            self.leaf_joined(account)

    def close_homeless(self) -> None:
        """Close the leaf nodes of accounts that are no more."""
        if self.leafs:
            from gnats.leafnodes.reload import close_homeless

            close_homeless(self.leafs, self._server.accounts, self._server.log)

    def stop_accepting(self) -> None:
        """Close the ports, and dial nobody any more; established connections stay. Idempotent."""
        for part in self._parts:
            part.stop_accepting()

    def close(self) -> None:
        """Close all connections: the server shuts down."""
        for part in self._parts:
            part.close()


def _make_cluster(server: Owner) -> "Cluster":
    from gnats.cluster.cluster import Cluster, Hooks, ToldPort
    from gnats.core.links.route_session import RouteSession

    def leaf_url() -> str:
        leafs = server.links.leafs
        return leafs.info.own_url if leafs and not server.opts.leafnodes.no_advertise else ""

    def about_gateway(info: "PeerInfo", server_id: str) -> None:
        if gateways := server.links.gateways:
            gateways.told_by_route(info, server_id)
        else:
            text = f"Received information about gateway {quote(info.gateway)} from {server_id}"
            server.log.error(f"{text}, but gateway is not configured")

    # Gateways are made after the cluster, and leaf nodes may be made at a reload.
    def port(url: Callable[[], str], part: "Callable[[], Gateways | LeafNodes | None]") -> ToldPort:
        def added(url: str) -> None:
            if found := part():
                found.add_url(url)

        def removed(url: str) -> None:
            if found := part():
                found.remove_url(url)

        return ToldPort(url, added, removed)

    hooks = Hooks(
        renamed=server.rename_cluster,
        urls_changed=server.update_urls,
        next_cid=server.internal_clients.next_cid,
        gone=server.connection_gone,
        leafs=port(leaf_url, lambda: server.links.leafs),
        gateway=port(
            lambda: server.links.gateways.info.own_url if server.links.gateways else "",
            lambda: server.links.gateways,
        ),
        about_gateway=about_gateway,
        gateways=lambda: server.links.gateways.for_route() if server.links.gateways else b"",
        refused=_tell_of_refused(server, "Router"),
    )
    parts = server.identity, server.accounts, server.state, server.log, hooks, RouteSession
    tls = make_cluster_tls(server.opts)
    return Cluster(*parts, tls=tls, options=lambda: server.opts, spawn=server.spawn)


def _tell_of_refused(server: Owner, kind: str) -> "Callable[[LinkConnection[Any]], None]":
    """Return a function that publishes that a connection of this kind was refused for its credentials."""

    def tell(link: "LinkConnection[Any]") -> None:
        if server.events:
            server.events.link_refused(link, kind)

    return tell


def _make_leafs(server: Owner) -> "LeafNodes":
    from gnats.core.links.leaf_session import LeafSession
    from gnats.leafnodes.leafnodes import Hooks, LeafNodes

    async def lookup_account(name: str) -> "Account | None":
        if server.operator_mode:
            from gnats.auth.account_jwt import AccountError

            try:
                await server.operator_mode.lookup_account(name)
            except AccountError:
                return None
        return server.accounts.get(name)

    def linked(account: "Account") -> None:
        if server.jetstream:
            server.jetstream.reach_origins(account)

    hooks = Hooks(
        lookup_account=lookup_account,
        authenticator=lambda: server.auth,
        events=lambda: server.events,
        next_cid=server.internal_clients.next_cid,
        gone=server.connection_gone,
        closed=server.keep_closed,
        linked=linked,
        joined=lambda account: server.links.leaf_joined(account),
    )
    parts = server.identity, server.accounts, server.state, server.log, hooks, LeafSession
    tls = make_leaf_tls(server.opts)
    leafs = LeafNodes(*parts, tls=tls, options=lambda: server.opts, spawn=server.spawn)
    server.accounts.rebuilt = leafs.update_mapped
    return leafs


def _make_gateways(server: Owner) -> "Gateways":
    from gnats.core.links.gateway_session import GatewaySession
    from gnats.gateways.gateways import Gateways, Hooks

    def tell_cluster(line: bytes) -> None:
        if server.links.cluster:
            server.links.cluster.tell(line)

    def is_here(server_name: str) -> bool:
        routes = server.links.cluster.routes if server.links.cluster else ()
        return server_name in (server.identity.name, *(route.remote_name for route in routes))

    def dialled() -> None:
        if server.events:
            server.events.statsz_update()

    hooks = Hooks(
        next_cid=server.internal_clients.next_cid,
        gone=server.connection_gone,
        dialled=dialled,
        ranked=server.describe,
        accepted=lambda: server.links.tell_of_leafs(),
        tell_cluster=tell_cluster,
        is_here=is_here,
        refused=_tell_of_refused(server, "Gateway"),
    )
    parts = server.identity, server.accounts, server.state, server.log, hooks, GatewaySession
    tls = make_gateway_tls(server.opts)
    return Gateways(*parts, tls=tls, options=lambda: server.opts, spawn=server.spawn)


def make_cluster_tls(opts: "Options") -> "LinkTLS | None":
    """Make the TLS contexts of routes, for Cluster.use_tls(); None without TLS. Raises OptionError."""
    if not (opts.cluster.port and opts.cluster.tls):
        return None
    from gnats.tls.links import LinkTLS  # loads OpenSSL

    return LinkTLS(opts.cluster.tls)


def make_leaf_tls(opts: "Options") -> "LeafTLS | None":
    """Make the TLS contexts of leaf nodes and remotes; None without TLS. Raises OptionError."""
    block = opts.leafnodes
    if not (block.port and block.tls) and not any(remote.tls for remote in block.remotes):
        return None
    from gnats.tls.leafs import LeafTLS  # loads OpenSSL

    return LeafTLS(block)


def make_gateway_tls(opts: "Options") -> "GatewayTLS | None":
    """Make the TLS contexts of gateways; None without TLS. Raises OptionError."""
    block = opts.gateway
    if not block.configured or not (block.tls or any(remote.tls for remote in block.gateways)):
        return None
    from gnats.tls.gateways import GatewayTLS  # loads OpenSSL

    return GatewayTLS(block)
