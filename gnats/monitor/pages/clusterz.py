"""/gatewayz and /raftz (monitor.go): empty pages, because a server has none of these."""

from gnats.clock import time_ns
from gnats.go.text import rfc3339
from gnats.monitor.pages.options import (
    GatewayzOptions,
    RaftzOptions,
)
from gnats.monitor.pages.render import Named, Page


class NotFoundError(Exception):
    """The requested thing does not exist; the text is for the client."""


def gatewayz(server: Named, options: GatewayzOptions) -> Page:
    """List the connections to and from other clusters."""
    return {
        "server_id": server.id,
        "now": rfc3339(time_ns()),
        "outbound_gateways": {},
        "inbound_gateways": {},
    }


def raftz(server: Named, options: RaftzOptions) -> Page:
    """List the Raft groups.

    Raises NotFoundError.
    """
    raise NotFoundError("No Raft nodes registered")
