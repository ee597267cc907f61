"""/leafz: the connections to leaf nodes and hubs (Leafz in monitor.go)."""

from typing import TYPE_CHECKING, Protocol

from gnats.clock import time_ns
from gnats.go.text import duration, rfc3339
from gnats.monitor.pages.connz import round_trip, text
from gnats.monitor.pages.options import LeafzOptions
from gnats.monitor.pages.render import Named, Page, without_empty

if TYPE_CHECKING:
    from gnats.leafnodes.leaf import Leaf
    from gnats.leafnodes.leafnodes import LeafNodes

_OMITTED = frozenset(("is_isolated", "rtt", "subscriptions_list", "compression"))


class LeafzServer(Named, Protocol):
    """The server as this page sees it."""

    @property
    def leafs(self) -> "LeafNodes | None": ...


def leafz(server: LeafzServer, options: LeafzOptions) -> Page:
    """List the connections that have joined an account, of one account if the options say so."""
    leafs = server.leafs.table if server.leafs else ()
    wanted = [leaf for leaf in leafs if options.account in ("", leaf.account.name) and leaf.session]
    return {
        "server_id": server.id,
        "now": rfc3339(time_ns()),
        "leafnodes": len(wanted),
        "leafs": [_leaf_info(leaf, options) for leaf in wanted],
    }


def _leaf_info(leaf: "Leaf", options: LeafzOptions) -> Page:
    assert leaf.session
    counters = leaf.session.snapshot()
    info: Page = {
        "id": leaf.cid,
        "name": leaf.peer_name,
        "is_spoke": leaf.spoke,
        "is_isolated": leaf.isolated,
        "account": leaf.account.name,
        "ip": leaf.host,
        "port": leaf.port,
        "rtt": duration(round_trip(counters["rtt"])),
        "in_msgs": counters["in_msgs"],
        "out_msgs": counters["out_msgs"],
        "in_bytes": counters["in_bytes"],
        "out_bytes": counters["out_bytes"],
        "subscriptions": counters["subscriptions"],
    }
    if options.subscriptions:
        info["subscriptions_list"] = [text(sub[0]) for sub in leaf.session.subscriptions()]
    info["compression"] = leaf.compression
    return without_empty(info, _OMITTED)
