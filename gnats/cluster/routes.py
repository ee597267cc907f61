"""The table of routes: the connections to each remote server, by place in the pool or by account.

It decides which connections stay and marks them; it closes and sends nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gnats.cluster.info import PeerInfo
from gnats.cluster.route import Route
from gnats.go.text import quote, text_bytes
from gnats.go.url import URL


@dataclass(frozen=True, slots=True)
class Added:
    """The route is registered."""

    first: bool
    """It is the first connection to the remote server (for its account)."""
    forward: bool
    """With `first`: there are others, whom to tell of the remote server."""
    full: bool = True
    """The pool has no place left for another connection."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer's INFO does not fit; `error` is for the peer and the log."""

    error: str


@dataclass(frozen=True, slots=True)
class Duplicate:
    """There is a connection in its place; `full`: the pool has no place left."""

    full: bool = False


@dataclass(frozen=True, slots=True)
class Removed:
    """The effects of a route's end."""

    last: bool = False
    """It was the last connection to the remote server."""


def pool_index(account: str, size: int) -> int:
    """Return the place in a pool of the connection that carries an account (computeRoutePoolIdx): FNV-1a."""
    value = 2166136261
    for byte in text_bytes(account):
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value % size


class Routes:
    """The registered routes. `pool_size` is this server's; -1: it has no pools. `accounts` are pinned."""

    def __init__(self, pool_size: int, accounts: tuple[str, ...]) -> None:
        self.set_pool_size(pool_size)
        self.rejecting = False
        """New connections are closed: a reload changes the table (routesReject)."""
        self._remotes: dict[str, list[Route | None]] = {}
        self._pinned: dict[str, dict[str, Route]] = {account: {} for account in accounts}

    # -- look-ups --------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Route]:
        """All routes, those for one account last."""
        for pool in self._remotes.values():
            yield from filter(None, pool)
        for routes in self._pinned.values():
            yield from routes.values()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def num_remotes(self) -> int:
        return len(self._remotes)

    @property
    def pinned(self) -> tuple[str, ...]:
        """The accounts that have connections of their own."""
        return tuple(self._pinned)

    def __contains__(self, remote_id: object) -> bool:
        """Whether there is a connection to this remote server, other than for one account."""
        return remote_id in self._remotes

    def to(self, remote_id: str, account: str = "") -> list[Route]:
        """Return the connections to a remote server; with `account`, the one for that account alone."""
        if account:
            route = self._pinned.get(account, {}).get(remote_id)
            return [route] if route else []
        return list(filter(None, self._remotes.get(remote_id, ())))

    def one_of_each(self) -> Iterator[Route]:
        """One connection to each remote server (forEachRemote)."""
        for pool in self._remotes.values():
            if route := next(filter(None, pool), None):
                yield route

    def of_account(self, account: str) -> Iterator[Route]:
        """The connections for one account alone."""
        yield from self._pinned.get(account, {}).values()

    @property
    def remote_ids(self) -> tuple[str, ...]:
        return tuple(self._remotes)

    def pooled(self, remote_id: str) -> Iterator[Route]:
        """The connections of a pool to a remote server; none if it, or this server, has no pools."""
        yield from (route for route in self.to(remote_id) if not route.no_pool)

    def linked(self) -> dict[str, bool]:
        """The ids of the remote servers, each with whether all connections to it are registered."""
        remote_ids = set(self._remotes).union(*self._pinned.values())
        return {remote_id: self._is_complete(remote_id) for remote_id in remote_ids}

    def _is_complete(self, remote_id: str) -> bool:
        pool = self._remotes.get(remote_id, [])
        if pool and pool[0] and pool[0].no_pool:
            return True
        return bool(pool) and all(pool) and all(remote_id in routes for routes in self._pinned.values())

    # -- changes ---------------------------------------------------------------------------------------------

    def set_pool_size(self, size: int) -> None:
        """Use another size for new connections; -1: no pools. There are no pooled connections at the time."""
        self._pools = size > 0
        self.pool_size = max(size, 1)

    def pin(self, account: str) -> None:
        """Take connections for this account alone from now on. Idempotent."""
        self._pinned.setdefault(account, {})

    def unpin(self, account: str) -> None:
        """Take no connections for this account alone any more. It has none at the time."""
        self._pinned.pop(account, None)

    def add(self, route: Route, info: PeerInfo) -> Added | Refused | Duplicate:
        """Register a route whose peer has sent its first INFO (addRoute)."""
        size = max(self.pool_size, info.route_pool_size)
        pool = info.route_pool_size > 0 and self._pools
        if not pool:
            if route.account:
                route.no_reconnect = True
                text = f"Not possible to have a dedicated route for account {quote(route.account)}"
                return Refused(f"{text} between those servers")
            route.no_pool = True
        elif route.solicited:
            if info.route_pool_idx:
                return Refused(f"Route pool index should not be set but is set to {info.route_pool_idx}")
        elif not 0 <= info.route_pool_idx < size:
            sizes = f"pool size is {info.route_pool_size}"
            return Refused(f"Invalid route pool index: {info.route_pool_idx} - {sizes}")
        if route.account:
            return self._add_pinned(route)
        return self._add_pooled(route, info, size) if pool else self._add_alone(route, size)

    def _add_pinned(self, route: Route) -> Added | Refused | Duplicate:
        routes = self._pinned.get(route.account)
        if routes is None:
            return Refused(f"No route for account {quote(route.account)}")
        if other := routes.get(route.remote_id):
            _replaced_by(other, route)
            route.no_reconnect = True
            return Duplicate()
        routes[route.remote_id] = route
        route.registered = route.joined = True
        return Added(first=True, forward=len(routes) > 1)

    def _add_alone(self, route: Route, size: int) -> Added | Duplicate:
        if pool := self._remotes.get(route.remote_id):
            if other := pool[0]:
                _replaced_by(other, route)
            route.no_reconnect = True
            return Duplicate()
        return replace(self._put(route, [None] * size, 0), full=True)

    def _add_pooled(self, route: Route, info: PeerInfo, size: int) -> Added | Duplicate:
        index = info.route_pool_idx
        pool = self._remotes.get(route.remote_id)
        if pool is None:
            return self._put(route, [None] * size, index)
        pool += [None] * (size - len(pool))  # the peer's pool has grown
        if not route.solicited:
            if other := pool[index]:
                _replaced_by(other, route)
                return Duplicate()
            if solicited := next((each for each in pool if each and each.solicited), None):
                assert solicited.url
                upgrade_to_solicited(route, solicited.url, explicit=solicited.explicit)
            return self._put(route, pool, index)
        assert route.url
        for each in filter(None, pool):
            upgrade_to_solicited(each, route.url, explicit=route.explicit)
        if all(pool):
            route.no_reconnect = True
            return Duplicate(full=True)
        return self._put(route, pool, pool.index(None))

    def _put(self, route: Route, pool: list[Route | None], index: int) -> Added:
        first = not any(pool)
        self._remotes[route.remote_id] = pool
        pool[index] = route
        route.index = index
        route.registered = route.joined = True
        return Added(first=first, forward=first and len(self._remotes) > 1, full=all(pool))

    def remove(self, route: Route) -> Removed:
        """Forget a route (removeRoute). Idempotent."""
        if not route.registered:
            return Removed()
        route.registered = False
        if route.account:
            del self._pinned[route.account][route.remote_id]
            return Removed()
        pool = self._remotes[route.remote_id]
        pool[route.index] = None
        if any(pool):
            return Removed()
        del self._remotes[route.remote_id]
        return Removed(last=True)


def upgrade_to_solicited(route: Route, url: URL, *, explicit: bool) -> None:
    """Mark a route as dialled by this server, and as configured if `explicit` (upgradeRouteToSolicited)."""
    if not route.solicited or (explicit and not route.explicit):
        route.url = url
    route.solicited = True
    route.explicit |= explicit


def _replaced_by(stays: Route, goes: Route) -> None:
    """Give the marks of a route that is closed to the one that stays (handleDuplicateRoute)."""
    if goes.solicited and not stays.solicited:
        stays.solicited, stays.url = True, goes.url
    stays.explicit |= goes.explicit
    stays.retry = True  # both servers may close the other one's connection: then both connections go
