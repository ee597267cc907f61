"""Gossip: tell servers of a new one, and find out which of those that others tell of to dial."""

from collections.abc import Iterator

from gnats.cluster.info import GOSSIP_DEFAULT, GOSSIP_DISABLED, GOSSIP_OVERRIDE, PeerInfo
from gnats.cluster.route import Route, Target
from gnats.cluster.routes import Routes
from gnats.errors import OptionError
from gnats.go.text import join_host_port
from gnats.go.url import URL, parse_url
from gnats.options.values.cluster import ClusterOptions


def forward_new_route(routes: Routes, new: Route, info: PeerInfo, *, dialled: bool) -> None:
    """Tell other servers of the first connection to a remote server (forwardNewRouteInfoToKnownServers).

    `dialled`: this server has dialled it.
    """
    from_gossip = dialled and not new.explicit
    if (from_gossip and new.gossip_mode != GOSSIP_OVERRIDE) or info.gossip_mode == GOSSIP_DISABLED:
        return
    lines: dict[int, bytes] = {}
    for route in _told(routes, info):
        mode = _mode(route, new, dialled=dialled)
        if mode not in lines:
            lines[mode] = info.forwarded(mode)
        route.send(lines[mode])


def _told(routes: Routes, info: PeerInfo) -> Iterator[Route]:
    """One connection to each other server: for an account's route, that of the account if there is one."""
    account = info.route_account
    pinned = list(routes.of_account(account)) if account else []
    others = {route.remote_id for route in pinned} | {info.server_id}
    yield from (route for route in pinned if route.remote_id != info.server_id)
    for route in routes.one_of_each():
        if route.remote_id not in others and not (account and route.no_pool):
            yield route


def _mode(route: Route, new: Route, *, dialled: bool) -> int:
    explicit = new.explicit if dialled else route.explicit
    if explicit:
        return GOSSIP_OVERRIDE
    return GOSSIP_DEFAULT if dialled else GOSSIP_DISABLED


def implicit_targets(
    info: PeerInfo, own_id: str, routes: Routes, cluster: ClusterOptions, *, no_pool: bool
) -> list[Target]:
    """Return what to dial because of an INFO about another server (processImplicitRoute).

    `no_pool`: it came over a connection without a pool. Raises ValueError for an invalid URL.
    """
    account = info.route_account
    if info.server_id == own_id or (account and cluster.pool_size <= 0):
        return []
    if routes.to(info.server_id, account) or has_this_route_configured(info, cluster):
        return []
    url = parse_url(info.ip)
    if info.auth_required:
        url = URL(url.scheme, cluster.username, cluster.password, url.host, url.path)
    accounts = [account]
    if no_pool and not account:  # nobody will tell of the connections for one account
        accounts += cluster.accounts
    return [Target(url, account=each, gossip_mode=info.gossip_mode) for each in accounts]


def has_this_route_configured(info: PeerInfo, cluster: ClusterOptions) -> bool:
    """Check whether the routes of the configuration have this server's address (hasThisRouteConfigured)."""
    addresses = {join_host_port(info.host, info.port).lower()}
    try:
        host, _ = parse_url(info.ip).address()
    except (ValueError, OptionError):  # without an address there: the listening one alone
        pass
    else:
        addresses.add(join_host_port(host, info.port).lower())
    return any(url.host.lower() in addresses for url in cluster.routes)
