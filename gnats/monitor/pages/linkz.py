"""/linkz: connections to other servers of all kinds, and their problems. nats-server has no such page."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from gnats.clock import time_ns
from gnats.cluster.link_health import LinkHealth
from gnats.go.text import duration, join_host_port, rfc3339
from gnats.monitor.pages.connz import round_trip
from gnats.monitor.pages.render import Named, Page

if TYPE_CHECKING:
    from gnats.cluster.cluster import Cluster
    from gnats.cluster.route import Route
    from gnats.gateways.gateway import Gateway
    from gnats.gateways.gateways import Gateways
    from gnats.leafnodes.leaf import Leaf
    from gnats.leafnodes.leafnodes import LeafNodes


class LinkedServer(Protocol):
    """The server as its links see it."""

    @property
    def cluster(self) -> "Cluster | None": ...
    @property
    def leafs(self) -> "LeafNodes | None": ...
    @property
    def gateways(self) -> "Gateways | None": ...


class LinkzServer(LinkedServer, Named, Protocol):
    """The server as this page sees it."""


def healths(server: LinkedServer) -> list[LinkHealth]:
    """Return what watches the links of each kind."""
    parts: tuple[Cluster | LeafNodes | Gateways | None, ...] = server.cluster, server.leafs, server.gateways
    return [part.health for part in parts if part]


def problems(server: LinkedServer) -> list[Page]:
    """List slow links, conflicts, and routes, remotes and gateways of the configuration that are missing."""
    return [problem for health in healths(server) for problem in _problems(health)]


def _problems(health: LinkHealth) -> Iterator[Page]:
    for peer in health.check():
        if peer.slow:
            yield {"kind": health.kind, "problem": "slow", "remote": peer.name, "pending_size": peer.pending}
    for conflict, found in health.conflicts.alerts().items():
        yield {
            "kind": health.kind,
            "problem": conflict.problem,
            "remote": conflict.remote,
            "account": conflict.account,
            "times": found.times,
            "error": found.reason,
        }
    for missing in filter(None, health.configured().values()):
        yield {
            "kind": health.kind,
            "problem": "missing",
            "address": missing.link.address,
            "account": missing.link.account,
            "attempts": missing.attempts,
            "error": missing.error,
        }


def linkz(server: LinkzServer) -> Page:
    """List the connections to other servers, each by itself, and the problems of links."""
    links: list[Page] = []
    if server.cluster:
        errors = _errors(server.cluster.health)
        links += [_link("route", route, route.account, errors) for route in server.cluster.routes]
    if server.leafs:
        errors = _errors(server.leafs.health)
        table = [leaf for leaf in server.leafs.table if leaf.session]
        links += [_link("leafnode", leaf, leaf.account.name, errors) for leaf in table]
    if server.gateways:
        errors = _errors(server.gateways.health)
        open_ = [gateway for gateway in server.gateways.table if gateway.session]
        links += [_link("gateway", gateway, "", errors, gateway.name) for gateway in open_]
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": rfc3339(time_ns()),
        "links": links,
        "problems": problems(server),
    }


def _errors(health: LinkHealth) -> dict[str, str]:
    """Return why the last connection to each remote server was closed that has ended."""
    return {peer.name: peer.error for peer in health.check()}


def _link(
    kind: str, link: "Route | Leaf | Gateway", account: str, errors: dict[str, str], cluster: str = ""
) -> Page:
    assert link.session
    counters = link.session.snapshot()
    return {
        "kind": kind,
        "id": link.cid,
        "remote": link.trace_name,
        "cluster": cluster,
        "address": join_host_port(link.host, link.port),
        "account": account,
        "did_solicit": link.solicited,
        "rtt": duration(round_trip(counters["rtt"])),
        "pending_size": counters["pending_bytes"],
        "late": bool(counters["late"]),
        "in_msgs": counters["in_msgs"],
        "out_msgs": counters["out_msgs"],
        "in_bytes": counters["in_bytes"],
        "out_bytes": counters["out_bytes"],
        "subscriptions": counters["subscriptions"],
        "interest_repairs": counters["repairs"],
        "compression": link.compression,
        "last_error": errors.get(link.trace_name, ""),
    }
