"""/routez, /gatewayz, /leafz, /jsz and /raftz: of what a server has not, the documents that say so."""

import time
from typing import TYPE_CHECKING

from gnats.errors import FilteredError
from gnats.gofmt import rfc3339
from gnats.monitor.options import (
    GatewayzOptions,
    JszOptions,
    LeafzOptions,
    RaftzOptions,
    RoutezOptions,
)
from gnats.monitor.render import Page

if TYPE_CHECKING:
    from gnats.server import Server


class NotFoundError(Exception):
    """There is nothing of the kind; the text is for the one who asked."""


def routez(server: "Server", options: RoutezOptions) -> Page:
    """The routes to other servers of the cluster."""
    return {
        "server_id": server.id,
        "server_name": server.name,
        "now": rfc3339(time.time_ns()),
        "num_routes": 0,
        "routes": [],
    }


def gatewayz(server: "Server", options: GatewayzOptions) -> Page:
    """The connections to and from other clusters."""
    return {
        "server_id": server.id,
        "now": rfc3339(time.time_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


def leafz(server: "Server", options: LeafzOptions) -> Page:
    """The leaf nodes."""
    return {"server_id": server.id, "now": rfc3339(time.time_ns()), "leafnodes": 0, "leafs": []}


def jsz(server: "Server", options: JszOptions) -> Page:
    """JetStream.

    Raises FilteredError.
    """
    if options.leader_only:
        raise FilteredError("filtered response: not leader")
    return {
        "memory": 0,
        "storage": 0,
        "reserved_memory": 0,
        "reserved_storage": 0,
        "accounts": 0,
        "ha_assets": 0,
        "api": {"level": 0, "total": 0, "errors": 0},
        "server_id": server.id,
        "now": rfc3339(time.time_ns()),
        "disabled": True,
        "config": {"max_memory": 0, "max_storage": 0},
        "streams": 0,
        "consumers": 0,
        "messages": 0,
        "bytes": 0,
        "total": 0,
    }


def raftz(server: "Server", options: RaftzOptions) -> Page:
    """Raft groups.

    Raises NotFoundError.
    """
    raise NotFoundError("No Raft nodes registered")
