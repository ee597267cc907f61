"""The monitoring endpoint of a server, read as JSON."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

from .servers import TIMEOUT, Server, until


def monitor(server: Server, path: str) -> dict[str, Any]:
    """What `path` (such as "/varz") answers of a server started with `-m -1`. Raises HTTPError."""
    with urlopen(f"http://127.0.0.1:{server.monitor_port}{path}", timeout=TIMEOUT) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def wait_connections(server: Server, number: int) -> dict[str, Any]:
    """The /varz of the server once it has that number of connections: a closed one counts a moment longer."""

    def varz() -> dict[str, Any] | None:
        answer = monitor(server, "/varz")
        return answer if answer["connections"] == number else None

    return until(varz)
