"""Links that are slow or missing, in the log, on the monitoring pages and in the metrics."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from server.peer import Log
from support.clock import HeldClock
from support.servers import until

from gnats import Server
from gnats.cluster.link_conflicts import KEPT
from gnats.cluster.link_health import CHECK_INTERVAL, SETTLED
from gnats.go.url import parse_url
from gnats.monitor.metrics import exposition
from gnats.monitor.pages.healthz import healthz
from gnats.monitor.pages.linkz import linkz
from gnats.monitor.pages.options import HealthzOptions
from gnats.options.values.cluster import ClusterOptions, Compression
from gnats.options.values.leafnodes import LeafNodeOptions, RemoteLeafOptions
from gnats.system.ports import port_of, reserve_port

from .client import TIMEOUT
from .conftest import Start

pytestmark = pytest.mark.timeout(60)

LABELS = "kind", "remote", "address", "direction", "problem", "account"
PEER = {"server_id": "R", "server_name": "r", "host": "h", "port": 1, "cluster": "C", "headers": True}


def health(server: Server) -> dict[str, Any]:
    return healthz(server, HealthzOptions(links=True))


def metrics(server: Server) -> dict[tuple[str, ...], float]:
    """Return the metrics of links, by name and LABELS."""
    text = exposition(server, [])[0].decode()
    return {
        (
            sample.name.removeprefix("gnats_link_"),
            *(sample.labels[label] for label in LABELS if label in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("gnats_link_")
    }


def page_table(text: str) -> set[str]:
    """Return the fields of a link that the documentation of /linkz lists."""
    _, _, rest = text.partition("| field of a link |")
    rows = itertools.takewhile(lambda row: row.startswith("|"), rest.splitlines()[2:])
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


async def test_a_configured_route_that_is_not_connected_is_an_alert(start: Start, clock: HeldClock) -> None:
    log = Log()
    with reserve_port() as reserved:
        port = port_of(reserved)
        where = f"127.0.0.1:{port}"
        routes = (parse_url(f"nats://u:secret@{where}"),)
        server = await start(log, cluster=ClusterOptions(name="C", port=-1, routes=routes))
        assert health(server) == {"status": "ok", "status_code": 200, "links": []}
        await clock.advance(1.5)
        refused = f"dial tcp {where}: connect: connection refused"
        assert sorted(log.with_text("missing")) == [
            f'[WRN] Route to "{where}"{account} is missing: 2 attempts have failed: {refused}'
            for account in (' for account "$SYS"', "")
        ]
        problem = {"kind": "route", "problem": "missing", "address": where}
        problems = [
            problem | {"account": account, "attempts": 2, "error": refused} for account in ("", "$SYS")
        ]
        assert health(server) == {"status": "ok", "status_code": 200, "links": problems}
        assert "links" not in healthz(server, HealthzOptions())
        assert linkz(server)["problems"] == problems
        assert metrics(server) == {
            ("missing", "route", where, ""): 1.0,
            ("missing", "route", where, "$SYS"): 1.0,
        }
    other = await start(server_name="other", cluster=ClusterOptions(name="C", port=port))
    await clock.advance(2)
    await log.seen("Registering remote route", 2)
    assert len(health(server)["links"]) == 2  # the other server may still refuse
    await clock.advance(SETTLED + CHECK_INTERVAL)
    await log.seen("is not missing any more", 2)
    assert health(server)["links"] == []
    found = metrics(server)
    assert found["missing", "route", where, ""] == 0
    assert found["up", "route", "other"] == 1
    assert found["connections", "route", "other"] >= 1
    await other.shutdown()


async def test_a_remote_that_refuses_is_an_alert(start: Start, clock: HeldClock) -> None:
    log = Log()
    hub = await start(server_name="hub", leafnodes=LeafNodeOptions(port=-1, username="u", password="p"))
    assert hub.leafs
    where = f"127.0.0.1:{hub.leafs.port}"
    remote = RemoteLeafOptions((parse_url(f"nats-leaf://{where}"),))
    leaf = await start(log, server_name="leaf", leafnodes=LeafNodeOptions(remotes=(remote,)))
    await log.seen("Leafnode connection closed")
    assert health(leaf)["links"] == []
    await clock.advance(1)
    await log.seen("Leafnode connection closed", 2)
    [problem] = health(leaf)["links"]
    assert (problem["kind"], problem["problem"], problem["address"]) == ("leafnode", "missing", where)
    assert problem["error"] == "the other server says 'Authorization Violation'"
    assert log.with_text("is missing") == [
        f'[WRN] Leafnode connection to "{where}" for account "$G" is missing:'
        f" 2 attempts have failed: {problem['error']}"
    ]
    assert metrics(leaf)["missing", "leafnode", where, "$G"] == 1


async def test_a_route_that_is_refused_after_it_has_joined_is_an_alert(
    start: Start, clock: HeldClock
) -> None:
    """A server answers a CONNECT with a wrong password only after its INFO, with which the route joins."""
    log = Log()
    other = await start(cluster=ClusterOptions(name="C", port=-1, username="u", password="p"))
    assert other.cluster
    where = f"127.0.0.1:{other.cluster.port}"
    options = ClusterOptions(name="C", port=-1, pool_size=-1, routes=(parse_url(f"nats://u:no@{where}"),))
    server = await start(log, server_name="s", cluster=options)
    error = await missing_after_two(server, log, clock, "Router connection closed")
    assert error == "the other server says 'Authorization Violation'"


@pytest.mark.parametrize("kind", ["route", "leafnode"])
async def test_the_port_for_clients_is_named(start: Start, clock: HeldClock, kind: str) -> None:
    log = Log()
    other = await start(server_name="other")
    where = f"127.0.0.1:{other.port}"
    url = parse_url(f"nats://{where}")
    if kind == "route":
        server = await start(log, cluster=ClusterOptions(name="C", port=-1, pool_size=-1, routes=(url,)))
    else:
        server = await start(log, leafnodes=LeafNodeOptions(remotes=(RemoteLeafOptions((url,)),)))
    error = await missing_after_two(server, log, clock, "connection closed")
    wanted = "routes" if kind == "route" else "leaf nodes"
    assert error == f"Incorrect Port: {where} is a port for clients, not for {wanted}"


async def test_credentials_that_cannot_be_read_are_named(
    start: Start, clock: HeldClock, tmp_path: Path
) -> None:
    log = Log()
    hub = await start(server_name="hub", leafnodes=LeafNodeOptions(port=-1))
    assert hub.leafs
    path = tmp_path / "none.creds"
    url = parse_url(f"nats-leaf://127.0.0.1:{hub.leafs.port}")
    remote = RemoteLeafOptions((url,), credentials=str(path))
    server = await start(log, leafnodes=LeafNodeOptions(remotes=(remote,)))
    error = await missing_after_two(server, log, clock, "Leafnode connection closed")
    assert error == f"open {path}: no such file or directory"


async def test_an_error_that_a_connection_survives_is_not_why_it_ends(start: Start, clock: HeldClock) -> None:
    log = Log()
    hub = await start(server_name="hub", leafnodes=LeafNodeOptions(port=-1))
    assert hub.leafs
    remote = RemoteLeafOptions((parse_url(f"nats-leaf://127.0.0.1:{hub.leafs.port}"),))
    server = await start(log, leafnodes=LeafNodeOptions(remotes=(remote,)))
    assert server.leafs
    for seconds, error in (SETTLED, "the other server says 'No'"), (SETTLED + 0.1, "Kicked"):
        while not len(server.leafs.table):
            await clock.advance(0.5)
        [leaf] = server.leafs.table
        server.leafs._peer_error(leaf, "'No'")
        await clock.advance(seconds)
        server.leafs.disconnect(leaf.cid)
        await log.seen("Leafnode connection closed: Kicked")
        log.lines.clear()
        [peer] = server.leafs.health.check()
        assert peer.error == error


async def missing_after_two(server: Server, log: Log, clock: HeldClock, closed: str) -> str:
    """Return why a link is missing, after its second attempt; `closed` is in the log after each."""
    await log.seen(closed)
    assert health(server)["links"] == []
    while len(log.with_text(closed)) < 2:
        await clock.advance(0.5)
    [problem] = health(server)["links"]
    assert problem["problem"] == "missing"
    assert log.with_text("is missing") == [
        line for line in log.lines if problem["error"] in line and "WRN" in line
    ]
    return str(problem["error"])


async def test_a_loop_of_leaf_nodes_is_an_alert_on_both_sides(start: Start, clock: HeldClock) -> None:
    """Two servers dial each other."""
    logs = Log(), Log()
    with reserve_port() as reserved:
        port = port_of(reserved)
        to_second = RemoteLeafOptions((parse_url(f"nats-leaf://127.0.0.1:{port}"),))
        first = await start(
            logs[0], server_name="first", leafnodes=LeafNodeOptions(port=-1, remotes=(to_second,))
        )
    assert first.leafs
    to_first = RemoteLeafOptions((parse_url(f"nats-leaf://127.0.0.1:{first.leafs.port}"),))
    second = await start(
        logs[1], server_name="second", leafnodes=LeafNodeOptions(port=port, remotes=(to_first,))
    )
    reason = "Loop detected: two ways lead to this account: remove a remote"
    while not all(log.with_text(f"was closed: {reason}") for log in logs):
        await clock.advance(0.5)
    for server, other in (first, "second"), (second, "first"):
        loops = [each for each in health(server)["links"] if each["problem"] == "loop"]
        assert [(each["kind"], each["remote"], each["account"], each["error"]) for each in loops] == [
            ("leafnode", other, "$G", reason)
        ]
        assert metrics(server)["conflict", "leafnode", other, "loop", "$G"] == 1
    await second.shutdown()
    await clock.advance(KEPT)
    await logs[0].seen('[INF] Leafnode connection to "second" for account "$G" has had no loop for 75 s')
    assert [each["problem"] for each in health(first)["links"]] == ["missing"]


async def test_a_duplicate_leaf_node_is_an_alert_on_both_sides(start: Start, clock: HeldClock) -> None:
    """Two servers of one name: each closes the other's connection when it dials."""
    logs = Log(), Log()
    hub = await start(logs[0], server_name="hub", leafnodes=LeafNodeOptions(port=-1))
    assert hub.leafs
    remote = RemoteLeafOptions((parse_url(f"nats-leaf://127.0.0.1:{hub.leafs.port}"),))
    leafs = [
        await start(log, server_name="leaf", leafnodes=LeafNodeOptions(remotes=(remote,)))
        for log in (logs[1], None)
    ]
    await logs[0].seen("Replacing connection from same server")
    assert health(hub)["links"] == []  # it may be one whose end nobody had noticed
    while not all(log.with_text("was closed: another connection joins the same accounts") for log in logs):
        await clock.advance(0.5)
    for server, other in (hub, "leaf"), (leafs[0], "hub"):
        problem = next(each for each in health(server)["links"] if each["problem"] == "duplicate")
        assert (problem["kind"], problem["remote"], problem["account"]) == ("leafnode", other, "$G")
        assert problem["times"] >= 2


async def read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 20):
        pass


async def test_a_peer_that_does_not_read_is_named_once(start: Start, clock: HeldClock) -> None:
    log = Log()
    options = ClusterOptions(name="C", port=-1, compression=Compression("off"))
    server = await start(log, cluster=options, max_pending=4 << 20)
    assert server.cluster
    reader, writer = await asyncio.open_connection("127.0.0.1", server.cluster.port)
    writer.write(b'CONNECT {"name":"R","cluster":"C"}\r\n')
    writer.write(f"INFO {json.dumps(PEER)}\r\nRS+ $G big\r\nPING\r\n".encode())
    async with asyncio.timeout(TIMEOUT):
        await reader.readuntil(b"PONG\r\n")
    client_reader, client = await asyncio.open_connection("127.0.0.1", server.port)
    client.write(b'CONNECT {"verbose":false}\r\n')
    assert metrics(server)["slow", "route", "r"] == 0
    payload = b"PUB big 1000000\r\n" + b"x" * 1_000_000 + b"\r\nPING\r\n"
    [route] = server.cluster.routes
    assert route.session
    gate = route.session.snapshot()["gate"]
    assert gate == 12 << 20
    while not log.with_text("slow"):
        if route.session.snapshot()["pending_bytes"] <= gate:  # the kernel may have taken more of it
            client.write(payload)
            async with asyncio.timeout(TIMEOUT):
                await client_reader.readuntil(b"PONG\r\n")
        else:
            await clock.advance(2)
    [line] = log.with_text("slow")
    assert line.startswith('[WRN] Route to "r" is slow: ')
    [problem] = health(server)["links"]
    assert (problem["kind"], problem["problem"], problem["remote"]) == ("route", "slow", "r")
    found = metrics(server)
    assert (found["slow", "route", "r"], found["times_slow_total", "route", "r"]) == (1, 1)
    assert found["pending_bytes", "route", "r"] > gate
    [link] = linkz(server)["links"]  # type: ignore[misc]
    assert (link["kind"], link["remote"], link["subscriptions"]) == ("route", "r", 1)  # type: ignore[index]
    documented = page_table((Path(__file__).parents[2] / "docs/monitoring.md").read_text())
    assert set(link) == documented  # type: ignore[call-overload]
    reading = asyncio.create_task(read_all(reader))
    # It is counted a moment after the last byte has gone.
    snapshot = route.session.snapshot
    await asyncio.to_thread(until, lambda: not snapshot()["pending_bytes"])
    await clock.advance(1)
    await log.seen('Route to "r" is not slow any more')
    assert metrics(server)["slow", "route", "r"] == 0
    writer.close()
    client.close()
    await reading
    await log.seen("Router connection closed")
    assert metrics(server)["up", "route", "r"] == 0
    assert metrics(server)["messages_total", "route", "r", "out"] >= 12
