"""Embedded servers in a cluster: names, ports, reloads, shutdowns."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnats import Options, Server
from gnats.clock import sleep
from gnats.errors import OptionError, ServerError
from gnats.go.url import URL, parse_url
from gnats.options.values.accounts import AccountConfig, MapDest, Mapping
from gnats.options.values.auth import User
from gnats.options.values.cluster import ClusterOptions

from .conftest import Connect, Start
from .peer import TIMEOUT, Log

pytestmark = pytest.mark.timeout(60)


def url_of(server: Server) -> URL:
    """Return the URL of a server's port for routes."""
    assert server.cluster
    return parse_url(f"nats://127.0.0.1:{server.cluster.port}")


def routed(*servers: Server, **cluster: Any) -> ClusterOptions:
    """Return the options of a cluster with routes to these servers."""
    return ClusterOptions(port=-1, routes=tuple(map(url_of, servers)), **cluster)


async def meshed(*servers: Server, routes: int) -> None:
    """Return when each server has so many routes."""
    async with asyncio.timeout(TIMEOUT):
        while any(server.cluster is None or len(server.cluster.routes) != routes for server in servers):
            await sleep(0.01)


async def test_a_message_crosses_a_route(start: Start, connect: Connect) -> None:
    first = await start(cluster=routed(name="C"), server_name="first")
    second = await start(cluster=routed(first, name="C"), server_name="second")
    await meshed(first, second, routes=4)
    subscriber, publisher = await connect(first), await connect(second)
    subscriber.send(b"SUB a 1\r\n")
    await subscriber.ask(b"")
    async with asyncio.timeout(TIMEOUT):
        while not second.global_account.sublist.count():
            await sleep(0.01)
    publisher.send(b"PUB a 1\r\nx\r\n")
    await publisher.ask(b"")
    async with asyncio.timeout(TIMEOUT):
        while await subscriber.line() != b"MSG a 1 1":
            pass


async def test_long_answers_go_over_routes(start: Start, connect: Connect) -> None:
    accounts: dict[str, Any] = {
        "accounts": [AccountConfig("SYS")],
        "users": [User("s", "s", account="SYS")],
        "system_account": "SYS",
    }
    first = await start(cluster=routed(name="C"), server_name="first", **accounts)
    second = await start(cluster=routed(first, name="C"), server_name="second", **accounts)
    await meshed(first, second, routes=4)
    client = await connect(first)
    await client.connected(user="s", **{"pass": "s"})
    await client.ask(b"SUB answers 1\r\n")
    for page in b"ROUTEZ", b"SUBSZ":
        client.send(b"PUB $SYS.REQ.SERVER.PING.%s answers 0\r\n\r\n" % page)
        names = set()
        while len(names) < 2:
            line = await client.line()
            if line.startswith(b"{"):
                names.add(json.loads(line)["server"]["name"])
        assert names == {"first", "second"}


async def test_generated_names_become_one(start: Start) -> None:
    log = Log()
    first = await start(log, cluster=routed(), server_name="first")
    second = await start(log, cluster=routed(first), server_name="second")
    names = {first.opts.cluster.name, second.opts.cluster.name}
    assert all(len(name) == 22 for name in names)
    await meshed(first, second, routes=4)
    assert {first.opts.cluster.name, second.opts.cluster.name} == {max(names)}
    assert log.with_text(f"[INF] Cluster name updated to {max(names)}")
    assert len(log.with_text("[WRN] Cluster name was dynamically generated, consider setting one")) == 2


async def test_a_new_name_decides_which_mappings_apply(start: Start, connect: Connect) -> None:
    here = Mapping("in", (MapDest("there", 100), MapDest("here", 100, "C")))
    mapped = await start(cluster=routed(), server_name="mapped", mappings=[here])
    await start(cluster=routed(mapped, name="C"), server_name="named")
    async with asyncio.timeout(TIMEOUT):
        while mapped.opts.cluster.name != "C":
            await sleep(0.01)
    client = await connect(mapped)
    client.send(b"SUB here 1\r\nPUB in 1\r\nx\r\n")
    assert b"MSG here 1 1" in await client.ask(b"")
    assert client.info["server_name"] == "mapped"


async def test_a_reload_keeps_the_name(start: Start) -> None:
    server = await start(cluster=routed())
    name = server.opts.cluster.name
    await server.reload(replace(server.opts, max_payload=5000, cluster=ClusterOptions(port=-1)))
    assert (server.opts.cluster.name, server.opts.max_payload) == (name, 5000)
    with pytest.raises(OptionError, match="config reload not supported for cluster host"):
        await server.reload(replace(server.opts, cluster=ClusterOptions(port=-1, host="127.0.0.2")))


async def test_a_port_in_use_is_one_line(start: Start) -> None:
    server = await start(cluster=routed(name="C"))
    assert server.cluster
    port = server.cluster.port
    with pytest.raises(ServerError) as raised:
        await start(cluster=ClusterOptions(port=port))
    reason = f"listen tcp 127.0.0.1:{port}: bind: address already in use"
    assert str(raised.value) == f"Error listening on router port: {port} - {reason}"


async def test_a_server_that_stops_leaves_nothing_behind(start: Start) -> None:
    log = Log()
    first = await start(log, cluster=routed(name="C"), server_name="first")
    second = await start(log, cluster=routed(first, name="C"), server_name="second")
    await meshed(first, second, routes=4)
    await second.shutdown()
    assert len(log.with_text("Router connection closed: Server Shutdown - Remote: first")) == 4
    await meshed(first, routes=0)
    assert second.cluster
    assert not second.cluster.connected


async def test_a_server_dials_while_its_peer_is_not_there(start: Start) -> None:
    first = await start(cluster=routed(name="C"), server_name="first")
    gone = url_of(first)
    await first.shutdown()
    log = Log()
    cluster = ClusterOptions(port=-1, name="C", routes=(gone,))
    await start(log, cluster=cluster, server_name="second")
    await log.seen("[ERR] Error trying to connect to route (attempt 1): dial tcp 127.0.0.1:")


def test_a_server_alone_loads_nothing_of_clusters(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from gnats import Options, Server
async def main():
    async with Server(Options(port=-1)):
        pass
asyncio.run(main())
loaded = [name for name in sys.modules if name.startswith(("gnats.cluster", "gnats.core.links.route"))]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)


def test_jetstream_needs_names_in_a_cluster() -> None:
    opts = Options(cluster=ClusterOptions(port=-1))
    opts.jetstream = replace(opts.jetstream, enabled=True)
    with pytest.raises(OptionError, match="jetstream cluster requires `server_name` to be set"):
        Server(opts)
