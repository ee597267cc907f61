"""What the monitoring endpoint shows of routes: /routez, and the cluster and the counters of /varz."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from support.clusters import launch_routed
from support.launch import Launch
from support.monitor import monitor
from support.routepeer import GLOBAL, SYSTEM, Fake, RouteListener, RoutePeer
from support.servers import Server, until
from support.wire import HELLO, Connection

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def server(launch_shared: Launch) -> Server:
    return launch_routed(launch_shared)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as fake:
        yield fake


ROUTE = [
    "rid", "remote_id", "remote_name", "did_solicit", "is_configured", "ip", "port", "start", "last_activity",
    "rtt", "uptime", "idle", "pending_size", "in_msgs", "out_msgs", "in_bytes", "out_bytes", "subscriptions",
    "compression",
]  # fmt: skip


def route_of(server: Server, peer: RoutePeer, query: str = "") -> dict[str, Any]:
    port = int(peer.local.partition(":")[2])
    (found,) = (route for route in monitor(server, f"/routez{query}")["routes"] if route["port"] == port)
    return found  # type: ignore[no-any-return]


def test_routez(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server)
    peer.tell(b"RS+", GLOBAL, b"foo.*", b"bar q 2")
    with Connection(server.address) as client:
        client.send(HELLO + b"SUB here 1\r\nPUB foo.a 5\r\nhello\r\nPUB bar 2\r\nhi\r\n")
        client.fence()
        peer.message(GLOBAL, b"here", b"abc")
        peer.fence()
        until(lambda: route_of(server, peer)["pending_size"] == 0)  # the page may be older than the PONG
        route = route_of(server, peer)
    assert list(route) == ROUTE
    expected = {
        "remote_id": fake.id, "remote_name": fake.name, "did_solicit": False, "is_configured": False,
        "ip": "127.0.0.1", "pending_size": 0, "subscriptions": 2, "compression": "not supported",
        "in_msgs": 1, "in_bytes": 3, "out_msgs": 2, "out_bytes": 7,
    }  # fmt: skip
    assert {name: route[name] for name in expected} == expected


def test_routez_lists_subscriptions(server: Server, fake: Fake) -> None:
    peer = fake.pooled(server)
    peer.tell(b"RS+", GLOBAL, b"foo.*", b"bar q 2")
    assert sorted(route_of(server, peer, "?subs=true")["subscriptions_list"]) == ["bar", "foo.*"]
    system = fake.pinned(server)
    system.tell(b"RS+", SYSTEM, b"foo.*", b"bar q 2")
    for route, name in (peer, "R $G"), (system, "R"):
        shown = route_of(server, route, "?subs=detail")
        listed = sorted(shown["subscriptions_list_detail"], key=lambda entry: entry["subject"])
        rid = shown["rid"]
        assert listed == [
            {"subject": "bar", "qgroup": "q", "sid": f"{name} bar q", "msgs": 0, "cid": rid},
            {"subject": "foo.*", "sid": f"{name} foo.*", "msgs": 0, "cid": rid},
        ]
    assert list(route_of(server, system))[-2:] == ["account", "compression"]


def test_routez_shows_permissions(launch: Launch, fake: Fake) -> None:
    block = "permissions { import: ['a.>', b], export { allow: 'c.*', deny: [d] } }"
    server = launch_routed(launch, cluster=block)
    permissions = {"import": {"allow": ["x"]}, "export": {"deny": ["y"]}}
    peer = fake.pooled(server, **permissions)
    page = monitor(server, "/routez")
    assert (page["import"], page["export"]) == ({"allow": ["a.>", "b"]}, {"allow": ["c.*"], "deny": ["d"]})
    route = route_of(server, peer)
    assert (route["import"], route["export"]) == (permissions["import"], permissions["export"])
    assert list(route)[10:14] == ["uptime", "idle", "import", "export"]


def test_varz_counts_connections_and_servers(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch)

    def counts() -> list[int]:
        varz = monitor(server, "/varz")
        return [
            varz["routes"],
            varz["remotes"],
            varz["connections"],
            monitor(server, "/routez")["num_routes"],
        ]

    assert counts() == [0, 0, 0, 0]
    fake.greet(server)
    assert counts() == [0, 0, 0, 0]
    fake.pooled(server), fake.pinned(server)
    assert counts() == [2, 1, 0, 2]
    with Fake() as other:
        other.pooled(server)
        assert counts() == [3, 2, 0, 3]
    until(lambda: counts() == [2, 1, 0, 2])


def test_varz_counts_messages(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch)
    peer = fake.pooled(server)
    peer.tell(b"RS+", GLOBAL, b"there")
    with Connection(server.address) as client:
        client.send(HELLO + b"SUB here 1\r\nPUB there 5\r\nhello\r\n")
        client.fence()
        peer.message(GLOBAL, b"here", b"abc")
        peer.message(GLOBAL, b"nowhere", b"abcd")
        peer.fence()
        client.fence()
    names = ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
    names += tuple(name.replace("_", "_client_") for name in names)
    varz = monitor(server, "/varz")
    assert [varz[name] for name in names] == [3, 12, 2, 8, 1, 5, 1, 3]


def test_varz_shows_the_cluster(launch: Launch) -> None:
    with RouteListener() as one, RouteListener() as two:
        urls = [f"nats-route://u:p@127.0.0.1:{one.port}", f"nats://127.0.0.1:{two.port}"]
        block = (
            f"routes: {json.dumps(urls)}, pool_size: 5, write_deadline: 3s\nauthorization {{ timeout: 3 }}"
        )
        server = launch_routed(launch, cluster=block)
        port = int(server.wait_log(r"Listening for route connections on 127.0.0.1:(\d+)")[1])
        assert monitor(server, "/varz")["cluster"] == {
            "name": "C", "addr": "127.0.0.1", "cluster_port": port, "auth_timeout": 3,
            "urls": [f"127.0.0.1:{one.port}", f"127.0.0.1:{two.port}"], "tls_timeout": 2, "pool_size": 5,
            "write_deadline": 3_000_000_000,
        }  # fmt: skip
