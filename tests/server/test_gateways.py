"""Embedded servers of several clusters: they find each other, keep each other's address, and rest."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gnats import Server
from gnats.clock import sleep
from gnats.cluster.mesh import wait_until
from gnats.errors import OptionError, ServerError
from gnats.gateways import gateways as module
from gnats.gateways.gateways import Gateways
from gnats.go.url import parse_url
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.gateway import GatewayOptions, RemoteGatewayOptions

from .conftest import Connect, Start
from .peer import TIMEOUT, Log

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have servers dial other clusters when they start, not a second later."""
    monkeypatch.setattr(module, "SOLICIT_DELAY", 0.0)


def gateways(server: Server) -> Gateways:
    assert server.gateways
    return server.gateways


def block(name: str, *others: Server, **options: Any) -> GatewayOptions:
    """Return the gateway block of a cluster that is to dial these servers."""
    remotes = [(other.opts.gateway.name, f"nats://127.0.0.1:{gateways(other).port}") for other in others]
    named = tuple(RemoteGatewayOptions(name, (parse_url(url),)) for name, url in remotes)
    return GatewayOptions(name=name, port=-1, gateways=named, **options)


async def joined(server: Server, *names: str) -> None:
    """Return when a server has a connection to each of these clusters, and one from each."""
    part = gateways(server)

    def complete() -> bool:
        return all(part.table.to(name) and part.table.of(name) for name in names)

    async with asyncio.timeout(TIMEOUT):
        await wait_until(part.watchers, complete)


async def test_three_clusters_from_one_seed(start: Start) -> None:
    first = await start(gateway=block("A"), server_name="a")
    second = await start(gateway=block("B", first), server_name="b")
    third = await start(gateway=block("C", first), server_name="c")
    for server, names in (first, "BC"), (second, "AC"), (third, "AB"):
        await joined(server, *names)
    assert sorted(gateways(first).remotes) == ["B", "C"]
    assert first.opts.cluster.name == "A"


async def test_a_message_crosses_and_comes_back(start: Start, connect: Connect) -> None:
    first = await start(gateway=block("A"), server_name="a")
    second = await start(gateway=block("B", first), server_name="b")
    await joined(first, "B")
    await joined(second, "A")
    subscriber, publisher = await connect(first), await connect(second)
    subscriber.send(b"SUB a 1\r\n")
    await subscriber.ask(b"")
    async with asyncio.timeout(TIMEOUT):
        while not second.global_account.sublist.interested(b"a"):
            await sleep(0.01)
        publisher.send(b"PUB a 1\r\nx\r\n")
        await publisher.ask(b"")
        while await subscriber.line() != b"MSG a 1 1":
            pass


async def test_a_cluster_that_ends_is_dialled_again(start: Start) -> None:
    first = await start(gateway=block("A"), server_name="a")
    second = await start(gateway=block("B", first), server_name="b")
    await joined(second, "A")
    port = gateways(first).port
    await first.shutdown()
    async with asyncio.timeout(TIMEOUT):
        await wait_until(gateways(second).watchers, lambda: not len(gateways(second).table))
    await start(gateway=replace(block("A"), port=port), server_name="a")
    await joined(second, "A")


async def test_a_reload_keeps_the_port_and_refuses_the_rest(start: Start) -> None:
    server = await start(gateway=block("A"))
    port = gateways(server).port
    await server.reload(replace(server.opts, gateway=block("A")))
    assert gateways(server).port == port == server.opts.gateway.port
    with pytest.raises(OptionError, match="config reload not supported for Gateway"):
        await server.reload(replace(server.opts, gateway=block("A", reject_unknown=True)))


async def test_a_port_in_use_ends_the_start(start: Start) -> None:
    server = await start(gateway=block("A"))
    port = gateways(server).port
    error = f"Error listening on gateway port: {port} - listen tcp 127.0.0.1:{port}: bind: address already"
    with pytest.raises(ServerError, match=error):
        await start(gateway=replace(block("A"), port=port))


async def test_a_server_that_hears_of_gateways_and_has_none_says_so(start: Start) -> None:
    first = await start(gateway=block("A"), server_name="a")
    other = await start(gateway=block("B", first), server_name="b", cluster=ClusterOptions(port=-1))
    await joined(other, "A")
    assert other.cluster
    url = parse_url(f"nats://127.0.0.1:{other.cluster.port}")
    cluster = ClusterOptions(name="B", port=-1, routes=(url,))
    log = Log()
    plain = await start(cluster=cluster, server_name="plain", log=log)
    await log.seen(f'Received information about gateway "A" from {other.id}, but gateway is not configured')
    assert plain.gateways is None
