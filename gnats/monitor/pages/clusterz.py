"""/routez, /gatewayz, /leafz and /raftz (monitor.go): of what a server has not, the documents that say so."""

from gnats.clock import time_ns
from gnats.go.text import rfc3339
from gnats.monitor.pages.options import (
    GatewayzOptions,
    LeafzOptions,
    RaftzOptions,
    RoutezOptions,
)
from gnats.monitor.pages.render import Named, Page


class NotFoundError(Exception):
    """There is nothing of the kind; the text is for the one who asked."""


def routez(server: Named, options: RoutezOptions) -> Page:
    """The routes to other servers of the cluster."""
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": rfc3339(time_ns()),
        "num_routes": 0,
        "routes": [],
    }


def gatewayz(server: Named, options: GatewayzOptions) -> Page:
    """The connections to and from other clusters."""
    return {
        "server_id": server.id,
        "now": rfc3339(time_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


def leafz(server: Named, options: LeafzOptions) -> Page:
    """The leaf nodes."""
    return {"server_id": server.id, "now": rfc3339(time_ns()), "leafnodes": 0, "leafs": []}


def raftz(server: Named, options: RaftzOptions) -> Page:
    """Raft groups.

    Raises NotFoundError.
    """
    raise NotFoundError("No Raft nodes registered")
