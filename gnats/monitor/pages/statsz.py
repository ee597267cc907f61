"""The server's statistics, which it publishes in the system account (ServerStats in events.go)."""

from typing import TYPE_CHECKING, Protocol

from gnats.connection.closed_state import count_by_kind
from gnats.go.text import rfc3339
from gnats.monitor.pages.jsz import JszServer, varz_jetstream
from gnats.monitor.pages.render import Page, without_empty
from gnats.system.usage import cores, process, resident_bytes

if TYPE_CHECKING:
    from gnats.cluster.cluster import Cluster
    from gnats.cluster.route import Route
    from gnats.core.runtime.state import ServerState
    from gnats.gateways.gateway import Gateway
    from gnats.gateways.gateways import Gateways
    from gnats.gateways.table import GatewayTable
    from gnats.leafnodes.leafnodes import LeafNodes
    from gnats.runtime.pollers import Pollers


class StatszServer(JszServer, Protocol):
    """The server as its statistics see it."""

    @property
    def start_time(self) -> int: ...
    @property
    def num_clients(self) -> int: ...
    @property
    def total_clients(self) -> int: ...
    @property
    def num_subscriptions(self) -> int: ...
    @property
    def active_servers(self) -> int: ...
    @property
    def pollers(self) -> "Pollers | None": ...
    @property
    def state(self) -> "ServerState": ...
    @property
    def cluster(self) -> "Cluster | None": ...
    @property
    def gateways(self) -> "Gateways | None": ...
    @property
    def leafs(self) -> "LeafNodes | None": ...


def server_stats(server: StatszServer) -> Page:
    """Return the server's statistics."""
    traffic, cluster, gateways = traffic_of(server), server.cluster, server.gateways
    slow, stale, stalls = (
        server.state.slow_consumers,
        server.state.stale_connections,
        server.state.stalls,
    )
    stats: Page = {
        "start": rfc3339(server.start_time),
        "mem": resident_bytes(),
        "cores": cores(),
        "cpu": process.cpu(),
        "connections": server.num_clients,
        "total_connections": server.total_clients,
        "active_accounts": sum(1 for account in server.accounts.values() if account.clients or account.leafs),
        "subscriptions": server.num_subscriptions,
        "sent": {"msgs": traffic["out_msgs"], "bytes": traffic["out_bytes"]},
        "sent_to_clients": {"msgs": traffic["out_client_msgs"], "bytes": traffic["out_client_bytes"]},
        "received": {"msgs": traffic["in_msgs"], "bytes": traffic["in_bytes"]},
        "received_from_clients": {"msgs": traffic["in_client_msgs"], "bytes": traffic["in_client_bytes"]},
        "slow_consumers": slow,
    }
    if slow:
        stats["slow_consumer_stats"] = slow_by_kind(server)
    if stale:
        stats["stale_connections"] = stale
        stats["stale_connection_stats"] = stale_by_kind(server)
    if stalls:
        stats["stalled_clients"] = stalls
    if cluster and (routes := [_route_stat(route) for route in cluster.routes]):
        stats["routes"] = routes
    if gateways and (outbound := gateways.table.nearest_first()):
        stats["gateways"] = [_gateway_stat(gateways.table, gateway) for gateway in outbound]
    stats["active_servers"] = server.active_servers
    if server.jetstream:
        stats["jetstream"] = varz_jetstream(server, directory=False)
    stats["gomaxprocs"] = cores()
    return stats


def slow_by_kind(server: StatszServer) -> dict[str, int]:
    """Return how many connections were slow, by kind."""
    parts = server.cluster, server.gateways, server.leafs
    return count_by_kind(server.state.slow_consumers, *(part.slow if part else 0 for part in parts))


def stale_by_kind(server: StatszServer) -> dict[str, int]:
    """Return how many connections did not answer PINGs, by kind."""
    parts = server.cluster, server.gateways, server.leafs
    return count_by_kind(server.state.stale_connections, *(part.stale if part else 0 for part in parts))


def traffic_of(server: StatszServer) -> dict[str, int]:
    """Return the messages and bytes of all connections, and those of clients."""
    total = server.pollers.stats() if server.pollers else {}
    links = [part.traffic() for part in (server.cluster, server.gateways, server.leafs) if part]
    found: dict[str, int] = {}
    for way in ("in", "out"):
        names = {f"{way}_{unit}": f"{way}_client_{unit}" for unit in ("msgs", "bytes")}
        found |= {name: total.get(name, 0) for name in names}
        found |= {
            of_clients: max(total.get(name, 0) - sum(each.get(name, 0) for each in links), 0)
            for name, of_clients in names.items()
        }
    return found


def _route_stat(route: "Route") -> Page:
    assert route.session
    counters = route.session.snapshot()
    stat: Page = {
        "rid": route.cid,
        "name": route.remote_name,
        "sent": {"msgs": counters["out_msgs"], "bytes": counters["out_bytes"]},
        "received": {"msgs": counters["in_msgs"], "bytes": counters["in_bytes"]},
        "pending": counters["pending_bytes"],
    }
    return without_empty(stat, ("name",))


def _gateway_stat(table: "GatewayTable", gateway: "Gateway") -> Page:
    """Count what went to a cluster, and what came over the connections that the cluster has made."""
    sent, inbound = gateway.snapshot(), table.of(gateway.name)
    received = [each.snapshot() for each in inbound]
    return {
        "gwid": gateway.cid,
        "name": gateway.name,
        "sent": {"msgs": sent["out_msgs"], "bytes": sent["out_bytes"]},
        "received": {
            "msgs": sum(counters["in_msgs"] for counters in received),
            "bytes": sum(counters["in_bytes"] for counters in received),
        },
        "inbound_connections": len(inbound),
    }
