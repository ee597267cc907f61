"""A server that dials routes: its handshake, pools, pinned accounts, duplicates, and that it dials again."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from support.certs import Certificates
from support.clusters import launch_routed
from support.launch import Launch
from support.monitor import monitor
from support.routepeer import GLOBAL, POOL, Fake, RouteListener, RoutePeer, messages, pool_index
from support.servers import Server, reserve_port, until
from support.wire import HELLO, PING, PONG, Closed, Connection

from .cases import UNKNOWN, params

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def listener() -> Iterator[RouteListener]:
    with RouteListener() as listener:
        yield listener


@pytest.fixture
def fake(listener: RouteListener) -> Iterator[Fake]:
    """The server that `listener` belongs to."""
    with Fake(port=listener.port) as fake:
        yield fake


def dialling(
    launch: Launch, *listeners: RouteListener, block: str = "", login: str = "", **more: str
) -> Server:
    """Start a server whose routes are these listeners; `login` is "user:password@" for their URLs."""
    routes = [listener.url.replace("//", f"//{login}") for listener in listeners]
    return launch_routed(launch, "-D", cluster=f"routes: {json.dumps(routes)}\n{block}", **more)


def routes(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = monitor(server, "/routez")["routes"]
    return found


def greeted(fake: Fake, listener: RouteListener) -> tuple[RoutePeer, RoutePeer]:
    """Take the first two connections: the pool's first, and the system account's. Send no INFO."""
    first, second = fake.greeted(listener), fake.greeted(listener)
    return (second, first) if first.account else (first, second)


CONNECT = ["echo", "verbose", "pedantic", "tls_required", "headers", "name", "cluster", "lnoc", "ln"]


def test_connect(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    peer = fake.accept(listener)
    values = [True, False, False, False, True, monitor(server, "/varz")["server_id"], "C", True, True]
    assert list(peer.connect.items()) == list(zip(CONNECT, values, strict=True))


def test_the_url_has_the_login(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    dialling(launch, listener, login="ru:r%20p@", block="authorization { user: x, password: y }")
    peer = fake.accept(listener)
    assert (peer.connect["user"], peer.connect["pass"]) == ("ru", "r p")
    assert list(peer.connect)[3:5] == ["user", "pass"]


def test_info_of_the_pool_waits_for_the_peers(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    with Connection(server.address) as client:
        client.send(HELLO + b"SUB foo 1\r\n")
        client.fence()
        pooled, system = greeted(fake, listener)
        assert (pooled.opening, len(system.opening)) == ([], 1)
        assert (system.info["route_account"], system.info["route_pool_size"]) == ("$SYS", POOL)
        first = fake.answer(pooled)
        assert first.opening[0].startswith(b"INFO {")
        fake.answer(fake.greeted(listener))
        peer = fake.answer(fake.greeted(listener))
        assert peer.info["route_pool_idx"] == pool_index(GLOBAL)
        assert peer.interest(peer.opening + peer.after(client)) == [b"RS+ foo"]


INFO = [
    "server_id", "server_name", "version", "proto", "host", "port", "headers", "max_payload", "nonce",
    "cluster", "connect_urls", "compression", "lnoc", "lnocu", "ln", "route_pool_size", "route_pool_idx",
]  # fmt: skip


def names(info: dict[str, Any]) -> list[str]:
    """Return the names of an INFO's members, but for those that nats-server or gnats alone has."""
    return [name for name in info if name not in ("go", "gnats", "interest_digests", "group_passing")]


def test_the_pool(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    *pool, system = fake.serve(listener)
    assert [names(peer.info) for peer in pool] == [INFO[:-1], INFO, INFO]
    assert [peer.info.get("route_pool_idx", 0) for peer in pool] == [0, 1, 2]
    assert names(system.info) == [*INFO[:-1], "route_account"]
    assert [peer.info["compression"] for peer in (*pool, system)] == ["not supported"] * 3 + ["off"]
    assert len({peer.info["nonce"] for peer in (*pool, system)}) == 4
    found = routes(server)
    assert {route["remote_name"] for route in found} == {fake.name}
    assert sorted(route.get("account", "") for route in found) == ["", "", "", "$SYS"]
    assert {(route["did_solicit"], route["is_configured"]) for route in found} == {(True, True)}
    assert {route["port"] for route in found} == {listener.port}
    assert not listener.pending()


def test_a_peer_that_says_off(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    pool = fake.serve(listener, compression="off")
    assert [peer.info["compression"] for peer in pool] == ["off"] * 4
    assert {route["compression"] for route in routes(server)} == {"off"}


def test_the_log(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    *pool, _ = fake.serve(listener)
    at = f"127.0.0.1:{listener.port}"
    server.wait_log(rf"\[DBG\] Trying to connect to route on {at} \({at}\)\n")
    for line in (
        "DBG Route connect msg sent",
        "INF Route connection created",
        f'DBG Registering remote route "{fake.id}"',
        f'DBG Registering remote route "{fake.id}" for account "$SYS"',
        "DBG Sent local subscriptions to route",
    ):
        pool[0].wait_logged(server, line)


def test_the_next_of_a_pool_waits_for_a_pong(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    dialling(launch, listener)
    first, system = greeted(fake, listener)
    fake.answer(system)
    for index in range(POOL):
        first.answers_pings = False
        fake.answer(first)
        assert first.info.get("route_pool_idx", 0) == index
        assert not listener.pending()
        if index < POOL - 1:
            if PING not in first.seen:
                first.until(PING)
            first.send(PONG * first.seen.count(PING))
            first = fake.greeted(listener)


@pytest.mark.parametrize(
    ("ours", "theirs", "number"), [(3, 5, 5), (5, 3, 5), (3, 1, 3), (1, 1, 1), (1, 3, 3)]
)
def test_the_larger_pool_counts(
    launch: Launch, listener: RouteListener, fake: Fake, ours: int, theirs: int, number: int
) -> None:
    dialling(launch, listener, block=f"pool_size: {ours}")
    *pool, system = fake.serve(listener, number + 1, size=theirs)
    assert [peer.info.get("route_pool_idx", 0) for peer in pool] == list(range(number))
    assert {peer.info["route_pool_size"] for peer in pool} == {ours}
    assert system.account == b"$SYS"
    assert not listener.pending()


def test_interest_goes_by_our_pool_and_messages_by_the_peers(
    launch: Launch, listener: RouteListener, fake: Fake
) -> None:
    server = dialling(launch, listener)
    *pool, _ = fake.serve(listener, 6, size=5)
    ours, theirs = pool_index(GLOBAL, 3), pool_index(GLOBAL, 5)
    assert ours != theirs
    pool[theirs].tell(b"RS+", GLOBAL, b"foo")
    with Connection(server.address) as client:
        client.send(HELLO + b"SUB bar 1\r\nPUB foo 2\r\nhi\r\n")
        client.fence()
        assert pool[ours].await_op(b"RS+ ") == b"RS+ $G bar\r\n"
        assert messages(pool[theirs].after(client)) == [b"RMSG $G foo 2\r\nhi\r\n"]


def test_a_server_without_pool(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    """CONNECT and INFO leave together, and no account has a connection of its own."""
    dialling(launch, listener, block="pool_size: -1")
    peer = fake.greeted(listener)
    assert (len(peer.opening), names(peer.info)) == (1, INFO[:-2])
    fake.answer(peer)
    assert [op for op in peer.opening if op.startswith(b"RS+ $SYS ")]
    assert not listener.pending()


def test_a_peer_without_pool(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    peer, system = greeted(fake, listener)
    fake.answer(peer, 0)
    assert [op for op in peer.opening if op.startswith(b"RS+ $SYS ")]
    system.send(fake.info())
    text = 'Not possible to have a dedicated route for account "$SYS" between those servers'
    assert [op for op in system.rest() if op.startswith(b"-ERR ")] == [f"-ERR '{text}'\r\n".encode()]
    system.wait_logged(server, f"ERR {text}")
    assert [route["remote_name"] for route in routes(server)] == [fake.name]


def test_a_peer_without_pool_that_comes_back(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    """The acceptor then dials, with a pool: the peer may have one now."""
    server = launch_routed(launch, "-D")
    fake.dial(server).close()
    *pool, system = fake.serve(listener)
    assert [peer.info.get("route_pool_idx", 0) for peer in pool] == [0, 1, 2]
    assert system.account == b"$SYS"
    assert {(route["did_solicit"], route["is_configured"]) for route in routes(server)} == {(True, False)}


def test_a_pinned_account(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    accounts = "accounts { P { users: [ { user: p, password: p } ] } }"
    server = dialling(launch, listener, block="accounts: [P]", config=accounts)
    *_, system, pinned = fake.serve(listener, POOL + 2)
    assert (system.account, pinned.account) == (b"$SYS", b"P")
    with Connection(server.address) as client:
        client.send(HELLO.replace(b"{", b'{"user":"p","pass":"p",') + b"SUB foo 1\r\n")
        client.fence()
        assert pinned.interest(pinned.after(client, b"P"), b"P") == [b"RS+ foo"]


REFUSED: dict[str, tuple[dict[str, Any], bytes, str]] = {
    "index in the pool": (
        {"route_pool_idx": 2},
        b"-ERR 'Route pool index should not be set but is set to 2'\r\n",
        "Protocol Violation",
    ),
    "other cluster": ({"cluster": "D"}, b"", "Cluster Name Conflict"),
}


@pytest.mark.parametrize(("info", "answer", "reason"), params(REFUSED))
def test_refused(
    launch: Launch, listener: RouteListener, fake: Fake, info: dict[str, Any], answer: bytes, reason: str
) -> None:
    server = dialling(launch, listener)
    pooled, _ = greeted(fake, listener)
    pooled.send(fake.info(route_pool_size=POOL, **info))
    assert b"".join(pooled.rest()) == answer
    pooled.wait_logged(server, f"INF Router connection closed: {reason}", begins=True)
    server.wait_log(rf'\[DBG\] Attempting reconnect for solicited route "{listener.url}"\n')
    assert fake.accept(listener).connect["name"]


def test_a_name_may_be_ours(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    """Only the acceptor refuses a server of its own name."""
    server = dialling(launch, listener, config="server_name: S")
    pooled, _ = greeted(fake, listener)
    fake.answer(pooled, server_name="S")
    assert [route["remote_name"] for route in routes(server)] == ["S"]


def test_an_error_of_the_peer(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    pooled, _ = greeted(fake, listener)
    pooled.send(b"-ERR 'Authorization Violation'\r\n")
    assert pooled.rest() == []
    pooled.wait_logged(server, "ERR Route Error 'Authorization Violation'")
    assert fake.accept(listener).connect["name"]


def test_all_connections_are_dialled_again(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    for peer in fake.serve(listener):
        peer.close()
    server.wait_log(rf'\[DBG\] Attempting reconnect for solicited route "{listener.url}"\n')
    places: set[tuple[bytes, int]] = set()
    while len(places) <= POOL:
        with suppress(Closed):  # each lost connection dials, and brings the next ones of the pool
            peer = fake.answer(fake.greeted(listener))
            places.add((peer.account, peer.info.get("route_pool_idx", 0)))
    until(lambda: len(routes(server)) == POOL + 1)


def test_one_connection_of_a_pool_is_dialled_again(
    launch: Launch, listener: RouteListener, fake: Fake
) -> None:
    dialling(launch, listener)
    *pool, _ = fake.serve(listener)
    pool[1].send(b"FOO\r\n")
    assert pool[1].rest()[-1] == UNKNOWN
    again = fake.answer(fake.greeted(listener))
    assert again.info["route_pool_idx"] == 1
    pool[0].fence()


def test_tls(launch: Launch, listener: RouteListener, fake: Fake, certs: Certificates) -> None:
    """CONNECT and INFO come after the handshake; the certificate is checked against the URL's host."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.server.cert_file, certs.server.key_file)
    block = f"tls {{ {certs.server.tls_block}, ca_file: '{certs.ca.cert_file}' }}"
    dialling(launch, listener, block=block)
    listener.tls = context
    peer = fake.accept(listener)
    assert peer.connect["tls_required"] is True


def test_tls_with_a_stranger(
    launch: Launch, listener: RouteListener, fake: Fake, certs: Certificates
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.untrusted_client.cert_file, certs.untrusted_client.key_file)
    block = f"tls {{ {certs.server.tls_block}, ca_file: '{certs.ca.cert_file}' }}"
    server = dialling(launch, listener, block=block)
    listener.tls = context
    with pytest.raises((OSError, Closed)):
        fake.accept(listener)
    server.wait_log(r"\[ERR\] .*TLS route handshake error: ")
    server.wait_log(r"Router connection closed: TLS Handshake Failure\n")


def test_it_is_dialled_until_it_listens(launch: Launch) -> None:
    port = reserve_port(launch)
    routes = f"routes: ['nats-route://127.0.0.1:{port}']"
    server = launch_routed(launch, "-D", cluster=routes)
    error = rf"\(attempt 1\): dial tcp 127.0.0.1:{port}: connect: connection refused\n"
    server.wait_log(rf"\[ERR\] Error trying to connect to route {error}")
    with RouteListener(port) as listener, Fake(port=port) as fake:
        assert len(fake.serve(listener)) == POOL + 1


def test_a_route_to_itself(launch: Launch) -> None:
    port = reserve_port(launch)
    block = (
        f"listen: '127.0.0.1:{port}', routes: ['nats-route://127.0.0.1:{port}', 'nats://localhost:{port}']"
    )
    server = launch_routed(launch, "-D", cluster=block)
    server.wait_log(rf'\[DBG\] Detected route to self, ignoring "nats-route://127.0.0.1:{port}"\n')
    assert "Router connection closed: Duplicate Route\n" in server.log
    assert "Trying to connect to route on localhost" not in server.log
    assert routes(server) == []


def test_two_names_of_one_server(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    """All its connections share the places of one pool; what is too much is closed and not dialled again."""
    with RouteListener() as second:
        server = dialling(launch, listener, second, block="pool_size: 1")
        first, system = greeted(fake, listener)
        others = greeted(fake, second)
        for peer in first, system:
            fake.answer(peer, 1)
        for peer in others:
            peer.send(fake.info(route_pool_size=1))
            peer.rest()
            peer.wait_logged(server, "INF Router connection closed: Duplicate Route", begins=True)
        assert len(routes(server)) == 2


def test_both_sides_dial(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    """The connection that came first stays, and counts as dialled by this server from then on."""
    server = dialling(launch, listener, block="pool_size: -1")
    ours = fake.accept(listener)
    theirs = fake.dial(server)
    assert [(r["did_solicit"], r["is_configured"]) for r in routes(server)] == [(False, False)]
    ours.send(fake.info())
    ours.rest()
    ours.wait_logged(server, f"INF Router connection closed: Duplicate Route - Remote: {fake.name}")
    assert [(r["did_solicit"], r["is_configured"]) for r in routes(server)] == [(True, True)]
    theirs.fence()
    theirs.close()
    assert fake.accept(listener).connect["name"]


def test_both_sides_fill_one_pool(launch: Launch, listener: RouteListener, fake: Fake) -> None:
    server = dialling(launch, listener)
    fake.dial(server, route_pool_size=POOL)
    ours, _ = greeted(fake, listener)
    fake.answer(ours)
    assert ours.info["route_pool_idx"] == 1
    assert fake.answer(fake.greeted(listener)).info["route_pool_idx"] == 2
    assert {(r["did_solicit"], r["is_configured"]) for r in routes(server)} == {(True, True)}
