"""The monitoring endpoint of a server, read as JSON."""

from __future__ import annotations

import json
from typing import Any
from urllib.request import urlopen

from .servers import TIMEOUT, Server


def monitor(server: Server, path: str) -> dict[str, Any]:
    """What `path` (such as "/varz") answers, of a server started with `-m -1`. Raises urllib.error.HTTPError."""
    with urlopen(f"http://127.0.0.1:{server.monitor_port}{path}", timeout=TIMEOUT) as response:
        answer: dict[str, Any] = json.load(response)
        return answer
