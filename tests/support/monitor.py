"""The monitoring endpoint of a server, read as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from urllib.request import urlopen

from .servers import TIMEOUT, Server, until

ELECTION = 60.0
"""Most seconds to wait for a leader."""


def monitor(server: Server, path: str) -> dict[str, Any]:
    """Return the answer to `path` (such as "/varz") of a server started with `-m -1`. Raises HTTPError."""
    with urlopen(f"http://{server.monitor_host}:{server.monitor_port}{path}", timeout=TIMEOUT) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def meta_leader(server: Server) -> str:
    """Return the name of the server that leads JetStream, as this one knows it; "": none."""
    return str(monitor(server, "/jsz").get("meta_cluster", {}).get("leader", ""))


def wait_meta_leader(servers: Iterable[Server]) -> str:
    """Wait until all servers know the same leader of JetStream; return its name. Raises TimeoutError."""
    servers = list(servers)

    def agreed() -> str:
        leaders = {meta_leader(server) for server in servers}
        return leaders.pop() if len(leaders) == 1 else ""

    return until(agreed, ELECTION)


def wait_connections(server: Server, number: int) -> dict[str, Any]:
    """Wait until the server counts `number` connections, and return that /varz. Raises TimeoutError.

    The server may count a connection for a moment after it is closed.
    """

    def varz() -> dict[str, Any] | None:
        answer = monitor(server, "/varz")
        return answer if answer["connections"] == number else None

    return until(varz)
