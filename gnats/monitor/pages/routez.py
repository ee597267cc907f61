"""/routez: the routes to other servers of the cluster (Routez in monitor.go)."""

from typing import TYPE_CHECKING, Protocol

from gnats.clock import time_ns
from gnats.go.text import duration, rfc3339, uptime
from gnats.monitor.pages.connz import round_trip, sub_detail, text
from gnats.monitor.pages.options import RoutezOptions
from gnats.monitor.pages.render import Named, Page, without_empty

if TYPE_CHECKING:
    from gnats.cluster.cluster import Cluster
    from gnats.cluster.route import Route

_OMITTED = frozenset(
    (
        "rtt",
        "import",
        "export",
        "subscriptions_list",
        "subscriptions_list_detail",
        "account",
        "compression",
    )
)


class RoutezServer(Named, Protocol):
    """The server as this page sees it."""

    @property
    def cluster(self) -> "Cluster | None": ...


def routez(server: RoutezServer, options: RoutezOptions) -> Page:
    """List the routes, each connection by itself."""
    now, cluster = time_ns(), server.cluster
    permissions = cluster.info.permissions() if cluster else {}
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": rfc3339(now),
        **permissions,
        "num_routes": len(cluster.routes) if cluster else 0,
        "routes": [_route_info(route, now, options) for route in cluster.routes] if cluster else [],
    }


def _route_info(route: "Route", now: int, options: RoutezOptions) -> Page:
    assert route.session and route.peer
    counters, sent = route.session.snapshot(), route.peer.sent
    last = counters["last_activity"] or route.start
    info: Page = {
        "rid": route.cid,
        "remote_id": route.remote_id,
        "remote_name": route.remote_name,
        "did_solicit": route.solicited,
        "is_configured": route.explicit,
        "ip": route.host,
        "port": route.port,
        "start": rfc3339(route.start),
        "last_activity": rfc3339(last),
        "rtt": duration(round_trip(counters["rtt"])),
        "uptime": uptime(now - route.start),
        "idle": uptime(now - last),
        "import": sent.get("import"),
        "export": sent.get("export"),
        "pending_size": counters["pending_bytes"],
        "in_msgs": counters["in_msgs"],
        "out_msgs": counters["out_msgs"],
        "in_bytes": counters["in_bytes"],
        "out_bytes": counters["out_bytes"],
        "subscriptions": counters["subscriptions"],
    }
    if options.subscriptions_detail:
        subs = route.session.subscriptions()
        info["subscriptions_list_detail"] = [sub_detail(route.cid, sub) for sub in subs]
    elif options.subscriptions:
        info["subscriptions_list"] = [text(sub[0]) for sub in route.session.subscriptions()]
    info |= {"account": route.account, "compression": route.compression}
    return without_empty(info, _OMITTED)
