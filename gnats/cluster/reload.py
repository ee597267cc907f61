"""Reload the options of a cluster while its routes are up (clusterOption, routesOption in reload.go)."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gnats.clock import timeout
from gnats.cluster.handshake import compiled_permissions
from gnats.cluster.info import OwnInfo
from gnats.cluster.link_connection import LinkConnection
from gnats.cluster.pinning import Pinning
from gnats.cluster.route import Route, ping_limits
from gnats.cluster.routes import Routes
from gnats.connection.closed_state import ClosedState
from gnats.errors import OptionError
from gnats.go.text import quote
from gnats.options.values.cluster import NOT_SUPPORTED, OFF, S2_AUTO, ClusterOptions
from gnats.options.values.tls import TLSOptions

if TYPE_CHECKING:
    from gnats.go.url import URL
    from gnats.log.logger import Logger
    from gnats.options.options import Options

T = TypeVar("T")
CLOSE_TIMEOUT = 2.0
"""Seconds that removed connections have to send what is queued; then it is dropped."""


class ReloadedCluster(Protocol):
    """The cluster as a reload sees it."""

    routes: Routes
    info: OwnInfo
    pinning: Pinning
    open: dict[int, Route]
    watchers: set[Callable[[], object]]

    @property
    def running(self) -> bool: ...

    def has_account(self, name: str) -> bool: ...
    def forget(self, route: Route) -> None: ...
    def hide_urls(self, *, hidden: bool) -> None: ...
    def solicit(self, urls: "Iterable[URL]", accounts: Iterable[str]) -> None: ...
    async def check_again(self, route: Route) -> None: ...


class ClusterReload:
    """One reload of a cluster: `old` and `new` are the server's options, `rename` uses a new cluster name.

    Call check() first; the new options are those of the cluster from then on. Then apply each field of
    options.reloadable that has changed, and at last run finish(), which waits.
    """

    def __init__(
        self,
        cluster: ReloadedCluster,
        old: "Options",
        new: "Options",
        log: "Logger",
        rename: Callable[[str, bool], object],
    ) -> None:
        self._cluster = cluster
        self._log = log
        self._rename = rename
        self._old_options, self._options = old, new
        self._old, self._new = old.cluster, new.cluster
        self._added = _missing(self._new.accounts, self._old.accounts)

    def check(self) -> None:
        """Check what the options alone cannot tell. Raises OptionError, and nothing has changed."""
        for account in self._added:
            if not self._cluster.has_account(account):
                what = f"unable to add account {quote(account)} to the list of dedicated routes"
                raise OptionError(f"{what}: account missing")

    def apply(self, field: str) -> None:
        """Apply the options of a field, Cluster or Routes, but for those that finish() applies."""
        if field == "Cluster":
            self._apply_cluster()
        elif field == "Routes":
            self._apply_routes()

    def _apply_cluster(self) -> None:
        new = self._new
        if new.name != self._old.name:
            self._rename(new.name, False)
        self._cluster.hide_urls(hidden=new.no_advertise)

    def _apply_routes(self) -> None:
        """Close the routes that are no longer configured, and dial the new ones."""
        cluster = self._cluster
        removed = _missing(self._old.routes, self._new.routes)
        for url in removed:
            for route in [route for route in cluster.open.values() if route.url == url]:
                self._remove(route)
                self._log.notice(f"Removed route {url.redacted()}")
        cluster.solicit(_missing(self._new.routes, self._old.routes), ("", *cluster.routes.pinned))

    def _remove(self, route: Route, *, reconnect: bool = False) -> None:
        route.no_reconnect |= not reconnect
        route.close(self._log, ClosedState.ROUTE_REMOVED)
        self._cluster.forget(route)

    async def finish(self) -> None:
        """Apply what changes the established routes."""
        cluster, old, new = self._cluster, self._old, self._new
        limits = ping_limits(self._options)
        if limits != ping_limits(self._old_options):
            for route in cluster.open.values():
                if route.session:
                    route.session.set_pings(**limits)
        if (new.username, new.password) != (old.username, old.password):
            for route in list(cluster.open.values()):
                if route.connected and not route.solicited:  # else the peer's login is not known
                    await cluster.check_again(route)
        if pinned_certs(new.tls) != pinned_certs(old.tls):
            close_unpinned(cluster.routes, pinned_certs(new.tls), self._log)
        if new.permissions != old.permissions:
            self._set_permissions()
        if new.compression != old.compression:
            self._change_compression()
        if _told(new) != _told(old):
            self._tell()
        if (new.pool_size, set(new.accounts)) != (old.pool_size, set(old.accounts)):
            await self._change_pools()

    def _set_permissions(self) -> None:
        """Use new permissions on all routes. What follows in a peer comes after they are in force."""
        permissions = compiled_permissions(self._options)
        for route in self._cluster.routes:
            try:
                if route.session:
                    route.session.set_permissions(permissions)
            except MemoryError:
                route.out_of_memory(self._log)

    def _change_compression(self) -> None:
        """Compress as configured now. Dial those peers again with whom that has to be agreed on."""
        new = self._new.compression
        for route in list(self._cluster.routes):
            if route.compression in (NOT_SUPPORTED, new.mode):
                continue
            if route.compression == OFF or not new.mode.startswith("s2_"):
                route.close(self._log, ClosedState.CLIENT_CLOSED)
            elif new.mode == S2_AUTO:
                route.follow_rtt(new)
            else:
                route.use_level(new.mode)

    def _tell(self) -> None:
        """Tell all peers the options that they may need."""
        line = self._cluster.info.line()
        for route in self._cluster.routes:
            route.send(line)

    async def _change_pools(self) -> None:
        """Change the size of the pools, and the accounts with connections of their own.

        New connections are closed meanwhile, so that none of them counts on what is about to change.
        """
        cluster, old, new = self._cluster, self._old, self._new
        routes, pinning = cluster.routes, cluster.pinning
        resized = new.pool_size != old.pool_size
        removed = _missing(old.accounts, new.accounts) if new.accounts else routes.pinned
        routes.rejecting = True
        try:
            await self._close_pinned(removed)
            pinning.remove(removed, to_pools=not resized)
            await pinning.add(self._added)
        finally:
            routes.rejecting = False
        if not cluster.running:
            return
        if resized:
            for route in [route for route in cluster.open.values() if not route.account]:
                self._remove(route, reconnect=True)
        routes.set_pool_size(new.pool_size)
        accounts = ("", *self._added) if resized else self._added
        cluster.solicit(new.routes, accounts)

    async def _close_pinned(self, accounts: Collection[str]) -> None:
        """Close the connections for these accounts alone; return when they are closed."""
        closing = [route for route in self._cluster.open.values() if route.account in accounts]
        for route in closing:
            self._remove(route)
        if not await self._wait_for_closed(closing):
            for route in closing:
                if route.session:
                    route.session.abort()
            await self._wait_for_closed(closing)

    async def _wait_for_closed(self, routes: Iterable[Route]) -> bool:
        """Wait for the end of connections that are being closed; return False after CLOSE_TIMEOUT."""
        watchers, changed = self._cluster.watchers, asyncio.Event()
        watchers.add(changed.set)
        try:
            async with timeout(CLOSE_TIMEOUT):
                while any(route.session for route in routes):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return False
        finally:
            watchers.discard(changed.set)
        return True


def _missing(these: Iterable[T], those: Iterable[T]) -> tuple[T, ...]:
    """Return those of `these` that are not among `those`."""
    known = set(those)
    return tuple(each for each in these if each not in known)


def pinned_certs(tls: TLSOptions | None) -> frozenset[str]:
    """Return the digests of the keys that peers may have; empty: any."""
    return tls.pinned_certs if tls else frozenset()


def close_unpinned(links: Iterable[LinkConnection[Any]], pins: frozenset[str], log: "Logger") -> None:
    """Close the connections whose peers have none of the keys that are pinned now."""
    refused = [link for link in links if pins and link.peer_key() not in pins]
    if refused:
        log.notice(f"Disconnect {len(refused)} clients due to pinned certs reload")
    for link in refused:
        link.close(log, ClosedState.TLS_HANDSHAKE_ERROR)


def _told(cluster: ClusterOptions) -> Mapping[str, object]:
    """Return the options that change the INFO of established routes."""
    return {
        "permissions": cluster.permissions,
        "advertise": cluster.advertise,
        "no_advertise": cluster.no_advertise,
    }
