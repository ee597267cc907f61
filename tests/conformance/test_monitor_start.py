"""The monitoring endpoint while streams are recovered: the server is live, and not ready yet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from support.caller import Caller
from support.jetstream import config
from support.launch import require
from support.servers import TIMEOUT, Kind, Server

pytestmark = pytest.mark.timeout(120)

NOT_READY = "failed to be ready for connections after 1ms: server"


def ask(server: Server, path: str) -> tuple[int, Any]:
    """Return the status and the JSON of a page."""
    try:
        with urlopen(f"http://127.0.0.1:{server.monitor_port}{path}", timeout=TIMEOUT) as response:
            return response.status, json.load(response)
    except HTTPError as exc:
        return exc.code, json.load(exc)


@contextmanager
def recovering(kind: Kind, directory: Path) -> Iterator[Server]:
    """Run a server whose recovery waits until the `with` block ends, as its stream's meta.inf is a pipe."""
    server = Server(kind, directory, "-m", "-1", config=config(directory / "js"))
    with Caller(server) as caller:
        caller.request("$JS.API.STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        caller.request("s", b"hello")
    server.stop()
    description = directory / "js/jetstream/$G/streams/S/meta.inf"
    content = description.read_bytes()
    description.unlink()
    os.mkfifo(description)
    server = Server(kind, directory, "-m", "-1", config=config(directory / "js"), ready=False)
    try:
        with description.open("wb") as pipe:  # open() waits for a reader, so recovery has begun
            yield server
            pipe.write(content)
        server.wait_ready()
        with Caller(server) as caller:
            assert caller.request("$JS.API.STREAM.INFO.S").json["state"]["messages"] == 1
        assert ask(server, "/healthz") == (200, {"status": "ok"})
    except BaseException:
        server.kill()
        raise
    server.stop()


def test_probes_see_a_server_that_recovers_live_and_not_ready(kind: Kind, tmp_path: Path) -> None:
    require(kind)
    with recovering(kind, tmp_path) as server:
        for query in ("", "?js-server-only=true", "?js-enabled-only=true", "?account=$G&stream=S"):
            assert ask(server, f"/healthz{query}") == (500, {"status": "error", "error": NOT_READY}), query
        status, answer = ask(server, "/healthz?details=true")
        assert status == 500
        assert answer == {"status": "error", "errors": [{"type": "CONNECTION", "error": NOT_READY}]}


@pytest.mark.parametrize("page", ["/varz", "/jsz", "/connz", "/subsz", "/accountz", "/accstatz", "/routez"])
def test_pages_are_answered_meanwhile(kind: Kind, tmp_path: Path, page: str) -> None:
    require(kind)
    if kind.is_reference:
        pytest.skip("some pages of the reference wait for locks that recovery holds")
    with recovering(kind, tmp_path) as server:
        status, answer = ask(server, page)
        assert status == 200
        assert isinstance(answer, dict)
