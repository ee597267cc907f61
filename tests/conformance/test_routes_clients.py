"""What clients see of a cluster: its servers' addresses, its name, and servers that leave."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import launch_routed
from support.launch import Launch
from support.routepeer import POOL, SYSTEM, Fake, RouteListener, RoutePeer
from support.servers import Server, until
from support.wire import HELLO, PONG, Connection, connect_op, parse_info

pytestmark = pytest.mark.timeout(60)

MODERN = connect_op(protocol=1, lang="x", headers=True)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake(connect_urls=["1.1.1.1:1", "1.1.1.1:2"]) as fake:
        yield fake


@pytest.fixture
def other() -> Iterator[Fake]:
    with Fake(connect_urls=["2.2.2.2:1", "1.1.1.1:2"]) as fake:
        yield fake


def greeted(server: Server) -> Connection:
    """Connect a client that takes INFO at any time, and has read the one that follows its first PING."""
    client = Connection(server.address)
    client.send(MODERN)
    client.fence()
    client.fence()
    return client


def infos(client: Connection) -> list[dict[str, Any]]:
    """Return the INFOs that have come since the last reading."""
    return [parse_info(op) for op in client.fence() if op.startswith(b"INFO ")]


def next_info(client: Connection) -> dict[str, Any]:
    """Return the next INFO."""
    while not (op := client.read_op()).startswith(b"INFO "):
        pass
    return parse_info(op)


def urls(info: dict[str, Any]) -> list[str]:
    """Return the client URLs of an INFO: the first, and then the others in order."""
    first, *others = info.get("connect_urls", [""])
    return [first, *sorted(others)]


def own(server: Server) -> str:
    return f"{server.host}:{server.port}"


def test_addresses_come_and_go(launch: Launch, fake: Fake, other: Fake) -> None:
    server = launch_routed(launch)
    with greeted(server) as client, Connection(server.address) as old:
        old.send(HELLO)
        old.fence()
        assert "connect_urls" not in client.info
        first = fake.pooled(server)
        info = next_info(client)
        assert urls(info) == [own(server), "1.1.1.1:1", "1.1.1.1:2"]
        assert (info["client_id"], "connect_info" in info) == (client.info["client_id"], False)
        second = other.dial(server, route_pool_size=POOL)
        assert urls(next_info(client)) == [own(server), "1.1.1.1:1", "1.1.1.1:2", "2.2.2.2:1"]
        with Connection(server.address) as late:
            assert urls(late.info) == [own(server), "1.1.1.1:1", "1.1.1.1:2", "2.2.2.2:1"]
        first.close()
        assert urls(next_info(client)) == [own(server), "1.1.1.1:2", "2.2.2.2:1"]
        second.close()
        assert urls(next_info(client)) == [own(server)]
        assert infos(old) == []
    with Connection(server.address) as late:
        assert urls(late.info) == [own(server)]


def test_only_the_last_connection_of_a_remote_counts(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch)
    with greeted(server) as client:
        peers = [fake.dial(server, route_pool_size=POOL, route_pool_idx=n or None) for n in range(POOL)]
        fake.pinned(server)
        next_info(client)
        for peer in peers[:-1]:
            peer.close()
            server.wait_log(rf"{peer.local} - rid:\d+ - Router connection closed: ")
        assert infos(client) == []
        peers[-1].close()
        assert urls(next_info(client)) == [own(server)]


def test_a_client_that_has_not_begun_gets_no_info(launch: Launch, fake: Fake) -> None:
    """It gets one with its first PONG."""
    server = launch_routed(launch)
    with (
        greeted(server) as other,
        Connection(server.address) as silent,
        Connection(server.address) as client,
    ):
        client.send(MODERN)
        fake.pooled(server)
        next_info(other)
        client.send(b"PING\r\n")
        assert client.read_op() == PONG
        assert urls(next_info(client)) == [own(server), "1.1.1.1:1", "1.1.1.1:2"]
        silent.send(b"CONNECT {}\r\nPING\r\n")
        assert silent.read_op() == b"+OK\r\n"
        assert silent.read_op() == PONG


def test_addresses_of_the_same_server_are_not_told_twice(launch: Launch) -> None:
    """A remote with the addresses of another, or with none, changes nothing."""
    server = launch_routed(launch)
    same = {"connect_urls": ["1.1.1.1:1"]}
    with greeted(server) as client, Fake(**same) as first, Fake(**same) as second, Fake() as third:
        first.pooled(server)
        next_info(client)
        peer = second.pooled(server)
        third.pooled(server)
        assert infos(client) == []
        peer.close()
        server.wait_log(rf"{peer.local} - rid:\d+ - Router connection closed: ")
        assert infos(client) == []


def test_no_advertise(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, cluster="no_advertise: true")
    with greeted(server) as client:
        peer = fake.pooled(server)
        assert "connect_urls" not in peer.info
        assert infos(client) == []
    with Connection(server.address) as late:
        assert "connect_urls" not in late.info


def test_client_advertise_is_told(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, config="client_advertise: '9.9.9.9:9'")
    with greeted(server) as client:
        assert fake.pooled(server).info["connect_urls"] == ["9.9.9.9:9"]
        assert urls(next_info(client))[0] == "9.9.9.9:9"


def test_a_remote_that_goes_lame(launch: Launch, fake: Fake) -> None:
    """Its addresses are gone at once, and its route stays."""
    server = launch_routed(launch)
    with greeted(server) as client:
        peer = fake.pooled(server)
        next_info(client)
        peer.send(fake.info(ldm=True, route_pool_size=POOL))
        assert peer.fence() == []
        assert urls(next_info(client)) == [own(server)]


def lame_infos(*peers: RoutePeer) -> list[dict[str, Any]]:
    """Return the INFOs of a server that goes lame which the peers have got since the last call."""
    return [parse_info(op) for peer in peers for op in peer.fence() if b'"ldm":true' in op]


def test_going_lame(launch: Launch, fake: Fake, other: Fake) -> None:
    """Each remote hears of it over one connection; clients learn the others' addresses."""
    server = launch_routed(launch, config="lame_duck_duration: 30s, lame_duck_grace_period: 1s")
    pool = [fake.dial(server, route_pool_size=POOL, route_pool_idx=n or None) for n in range(POOL)]
    system, single = fake.pinned(server), other.dial(server)
    system.tell(b"RS+", SYSTEM, b"$SYS.SERVER.>")
    with greeted(server) as client:
        server.process.send_signal(signal.SIGUSR2)
        lame = b"RMSG $SYS.SERVER.%b.LAMEDUCK " % system.info["server_id"].encode()
        system.await_op(lame)
        told = next_info(client)
        assert told["ldm"] is True
        assert sorted(told["connect_urls"]) == ["1.1.1.1:1", "1.1.1.1:2", "2.2.2.2:1"]
        alone = until(lambda: lame_infos(single))
        several = until(lambda: lame_infos(*pool))
        for info in *alone, *several:
            assert (info["server_id"], info["connect_urls"]) == (pool[0].info["server_id"], [own(server)])
            assert not {"nonce", "compression", "route_pool_idx"} & info.keys()
        assert (len(alone), len(several)) == (1, 1)
        server.stop(rested=False)


GENERATED = {"cluster_dynamic": True}


def unnamed(launch: Launch, block: str = "") -> tuple[Server, str]:
    """Start a server whose cluster has no name; return the one it generated."""
    server = launch_routed(launch, "-D", cluster=f"name: ''\n{block}")
    return server, server.wait_log(r"Cluster name is (\w+)\n")[1]


def name_of(server: Server) -> str:
    with Connection(server.address) as client:
        name: str = client.info["cluster"]
        return name


def test_a_generated_name_gives_way_to_a_configured_one(launch: Launch) -> None:
    """Other routes end; clients are not told, but new ones see it. The name is then as good as configured."""
    server, generated = unnamed(launch)
    with greeted(server) as client, Fake(cluster=generated) as same, Fake(cluster="A") as named:
        peer = same.dial(server, connect=GENERATED, **GENERATED, route_pool_size=POOL)
        assert client.info["cluster"] == generated
        winner = named.dial(server, route_pool_size=POOL)
        server.wait_log(r"\[INF\] Cluster name updated to A\n")
        assert peer.rest() == []
        peer.wait_logged(server, f"INF Router connection closed: Cluster Name Conflict - Remote: {same.name}")
        assert infos(client) == []
        assert name_of(server) == "A"
        assert winner.fence() == []
        assert named.greet(server).info["cluster"] == "A"
    with Fake(cluster="zzz") as late:
        refused = late.greet(server)
        refused.send(late.connect(**GENERATED))
        text = 'Rejecting connection, cluster name "zzz" does not match "A"'
        assert refused.rest() == [f"-ERR '{text}'\r\n".encode()]


SHARING = """
accounts {
  A { users: [ { user: a, password: pw } ], exports: [ { service: svc } ] }
  B {
    users: [ { user: b, password: pw } ]
    imports: [ { service: { account: A, subject: svc }, share: true } ]
  }
}
"""


def test_requests_to_services_have_the_new_name(launch: Launch) -> None:
    """Also those of accounts and clients that were there before; they never have a generated one."""
    server = launch_routed(launch, "-D", cluster="name: ''", config=SHARING)
    with (
        Caller(server, "a") as service,
        Caller(server, "b", inbox="_I.b") as requester,
        Fake(cluster="A") as named,
    ):
        service.subscribe("svc")

        def cluster() -> str | None:
            requester.ask("svc")
            details = json.loads(service.next_on("svc").headers["Nats-Request-Info"])
            name: str | None = details.get("cluster")
            return name

        assert cluster() is None
        named.dial(server, route_pool_size=POOL)
        server.wait_log(r"\[INF\] Cluster name updated to A\n")
        assert cluster() == "A"


def test_of_two_generated_names_the_greater_wins(launch: Launch) -> None:
    server, generated = unnamed(launch)
    with Fake(cluster="zzz") as greater, Fake(cluster="0") as smaller:
        refused = smaller.greet(server)
        refused.send(smaller.connect(**GENERATED))
        text = f'Rejecting connection, cluster name "0" does not match "{generated}"'
        assert refused.rest() == [f"-ERR '{text}'\r\n".encode()]
        greater.dial(server, connect=GENERATED, **GENERATED, route_pool_size=POOL)
        server.wait_log(r"\[INF\] Cluster name updated to zzz\n")
        assert name_of(server) == "zzz"
    with Fake(cluster="A") as named:
        named.dial(server, route_pool_size=POOL)
        assert name_of(server) == "A"


def test_a_dialled_server_has_the_name(launch: Launch) -> None:
    """The dialling server learns it from INFO, and greets with it."""
    with RouteListener() as listener, Fake(cluster="A", port=listener.port) as fake:
        server, generated = unnamed(launch, f"routes: ['{listener.url}']")
        pair = fake.greeted(listener), fake.greeted(listener)
        assert {(peer.connect["cluster"], peer.connect["cluster_dynamic"]) for peer in pair} == {
            (generated, True)
        }
        (pooled,) = (peer for peer in pair if not peer.account)
        fake.answer(pooled)
        assert pooled.info["cluster"] == "A"
        server.wait_log(r"\[INF\] Cluster name updated to A\n")
        assert name_of(server) == "A"
        assert fake.accept(listener).connect["cluster"] == "A"


def test_servers_without_a_name_agree(launch: Launch) -> None:
    first, generated = unnamed(launch)
    port = first.wait_log(r"Listening for route connections on \S+:(\d+)")[1]
    second, other = unnamed(launch, f"routes: ['nats-route://127.0.0.1:{port}']")
    until(lambda: name_of(first) == name_of(second) == max(generated, other))
