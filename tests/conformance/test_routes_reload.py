"""Reloads of the cluster block while routes are up: what is refused, logged, closed, dialled, announced.

Intended differences (docs/status.md has them too):

* The reference tells peers of new permissions only; gnats tells them of advertise and no_advertise, too, and
  its clients of no_advertise.
* A new size of the pool, or an account that gets routes of its own, makes the reference dial all routes of
  the configuration again, those that are up for nothing; gnats dials what is missing.
* An account that a peer gives routes of its own leaves the pools to all servers in the reference, those to
  that peer in gnats.
* In gnats new ping settings hold for open routes at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from support.clusters import launch_routed, routed
from support.launch import Launch
from support.monitor import monitor
from support.reload import hang_up, refused, reload, without_always
from support.routepeer import GLOBAL, POOL, SYSTEM, Fake, RouteListener, RoutePeer, pool_index, route_address
from support.servers import Server, until
from support.wire import HELLO, PING, Closed, Connection, connect_op, parse_info

from .cases import params

pytestmark = pytest.mark.timeout(120)

VIOLATION = b"-ERR 'Authorization Violation'\r\n"
ACCOUNTS = """
accounts {
  A { users: [{ user: a, password: p }] }
  B { users: [{ user: b, password: p }] }
}
"""
WITHOUT_A = "accounts { B { users: [{ user: b, password: p }] } }"
A = b"A"
TIMED_OUT = "Timed out waiting for confirmation from all routes regarding per-account routes changes"
REMOVED = "INF Router connection closed: Route Removed - Remote: "


@pytest.fixture
def fake() -> Iterator[Fake]:
    with Fake() as fake:
        yield fake


@pytest.fixture
def listener() -> Iterator[RouteListener]:
    with RouteListener() as listener:
        yield listener


@pytest.fixture
def listening(listener: RouteListener) -> Iterator[Fake]:
    """The server that `listener` belongs to."""
    with Fake(port=listener.port) as fake:
        yield fake


def reloaded(server: Server, block: str = "", config: str = "") -> list[str]:
    """Reload with other lines of the cluster block; return what is logged meanwhile, with levels."""
    route_address(server)  # the reference logs more after it is ready
    start = len(server.log)
    reload(server, routed(block, config))
    return re.findall(r"\[([A-Z]{3}\] .*)", server.log[start:])


def said(lines: list[str]) -> list[str]:
    """Return the lines about the cluster's options."""
    about = re.compile(r"\] (Reloaded: cluster.*|Removed route .*|Cluster name .*)")
    return [found[1] for line in lines if (found := about.search(line))]


def subscriptions(server: Server) -> list[str]:
    """Return what the pooled routes are interested in."""
    routes = monitor(server, "/routez?subs=1")["routes"]
    return sorted(
        subject
        for route in routes
        if not route.get("account")
        for subject in route.get("subscriptions_list", [])
    )


def interest(ops: list[bytes], peer: RoutePeer, account: bytes = GLOBAL) -> set[bytes]:
    """Return RS+ and RS- among `ops`, but for the server's own services."""
    return {line for line in peer.interest(ops, account) if b" $" not in line}


def infos(ops: list[bytes]) -> list[dict[str, Any]]:
    return [parse_info(op) for op in ops if op.startswith(b"INFO ")]


def subscriber(server: Server, *subjects: bytes, user: str = "") -> Connection:
    client = Connection(server.address)
    hello = connect_op(user=user, **{"pass": "p"}) if user else HELLO
    client.send(hello + b"".join(b"SUB %s %d\r\n" % (subject, n) for n, subject in enumerate(subjects, 1)))
    client.fence()
    return client


# -- what cannot change --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("'127.0.0.1:-1'", "'127.0.0.2:-1'", r"cluster host: old=127\.0\.0\.1, new=127\.0\.0\.2"),
        ("'127.0.0.1:-1'", "'127.0.0.1:1'", r"cluster port: old=\d+, new=1"),
    ],
)
def test_refused(launch: Launch, fake: Fake, old: str, new: str, error: str) -> None:
    server = launch_routed(launch)
    peer = fake.pooled(server)
    reason = refused(server, routed().replace(old, new))
    assert re.fullmatch("config reload not supported for " + error, reason)
    peer.fence()


def test_unknown_accounts_are_refused(launch: Launch) -> None:
    server = launch_routed(launch, config=ACCOUNTS)
    error = 'unable to add account "X" to the list of dedicated routes: account missing'
    assert refused(server, routed("accounts: [A, X]", ACCOUNTS)) == error
    assert refused(server, routed("accounts: [X]", ACCOUNTS.replace("B {", "X {"))) == error


def test_the_cluster_cannot_go_nor_come(launch: Launch) -> None:
    server = launch_routed(launch)
    reason = refused(server, "")
    assert reason == "config reload not supported for cluster host: old=127.0.0.1, new="
    assert refused(launch(), routed()) == reason.replace("127.0.0.1, new=", ", new=127.0.0.1")


# -- what is logged ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "lines"),
    params(
        {
            "nothing": ("", []),
            "ping": ("ping_interval: '5s', ping_max: 3", ["Reloaded: cluster"]),
            "write": ("write_deadline: 5s", ["Reloaded: cluster"]),
            "retries": ("connect_retries: 5, connect_backoff: true", ["Reloaded: cluster"]),
            "advertise": ("advertise: 'h:5'", ["Reloaded: cluster"]),
            "no_advertise": ("no_advertise: true", ["Reloaded: cluster"]),
            "name": ("name: D", ["Cluster name updated to D", "Reloaded: cluster"]),
            "no name": ("name: ''", ["Reloaded: cluster"]),
            "pool": ("pool_size: 5", ["Reloaded: cluster"]),
            "permissions": ("permissions { import: a }", ["Reloaded: cluster"]),
            "user": ("authorization { user: u, password: p }", ["Reloaded: cluster"]),
        }
    ),
)
def test_log_lines(launch: Launch, block: str, lines: list[str]) -> None:
    server = launch_routed(launch, config="server_name: S")
    assert said(reloaded(server, block, "server_name: S")) == lines


def test_a_new_name_keeps_the_routes(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch)
    peer = fake.pooled(server)
    reloaded(server, "name: D")
    assert peer.fence() == []
    with Fake() as other:
        assert other.greet(server).info["cluster"] == "D"
    assert monitor(server, "/varz")["cluster"]["name"] == "D"


# -- routes --------------------------------------------------------------------------------------------------


def test_routes(launch: Launch, listener: RouteListener, listening: Fake) -> None:
    server = launch_routed(launch, "-D")
    block = f"routes: ['{listener.url}']"
    assert said(reloaded(server, block)) == ["Reloaded: cluster routes"]
    peers = listening.serve(listener)
    assert {route["did_solicit"] for route in monitor(server, "/routez")["routes"]} == {True}
    lines = reloaded(server)
    assert said(lines) == [f"Removed route {listener.url}"] * len(peers) + ["Reloaded: cluster routes"]
    for peer in peers:
        peer.rest()
    until(lambda: server.log.count(REMOVED[4:] + listening.name) == len(peers))
    assert not listener.pending()
    reloaded(server, block)
    listening.serve(listener)


def test_a_route_that_is_not_up_is_removed(launch: Launch, listener: RouteListener) -> None:
    listener.close()
    server = launch_routed(launch, "-D", cluster=f"routes: ['{listener.url}']")
    server.wait_log("Error trying to connect to route")
    assert said(reloaded(server)) == ["Reloaded: cluster routes"]
    server.wait_log(f'explicit route "{listener.url}", no longer part of configured routes')


# -- users ---------------------------------------------------------------------------------------------------


def test_accepted_routes_are_checked_again(
    launch: Launch, fake: Fake, listener: RouteListener, listening: Fake
) -> None:
    routes = f"routes: ['{listener.url}']\n"
    server = launch_routed(launch, "-D", cluster=routes)
    dialled = listening.serve(listener)
    refused = fake.pooled(server)
    login: dict[str, Any] = {"user": "ru", "pass": "rp"}
    accepted = fake.dial(server, connect=login, route_pool_size=POOL)
    reloaded(server, routes + "authorization { user: ru, password: rp }")
    assert refused.rest()[-1:] == [VIOLATION]
    refused.wait_logged(server, "ERR authentication error")
    refused.wait_logged(server, "INF Router connection closed: Authentication Failure", begins=True)
    for peer in [accepted, *dialled]:
        peer.fence()
    reloaded(server, routes + "authorization { user: ru, password: other }")
    assert accepted.rest()[-1:] == [VIOLATION]
    accepted.wait_logged(server, 'ERR authentication error - User "ru"')
    for peer in dialled:
        peer.fence()
    assert fake.greet(server).info["auth_required"] is True


# -- permissions ---------------------------------------------------------------------------------------------


def allowing(*subjects: str) -> str:
    return json.dumps([*subjects, "mark.*"])


def test_import(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, cluster=f"permissions {{ import: {allowing('a.*')} }}")
    system = fake.pinned(server)
    peer = fake.pooled(server)
    with subscriber(server, b"a.1", b"b.1", b"b.2 g") as client:
        assert interest(peer.after(client), peer) == {b"RS+ a.1"}
        reloaded(server, f"permissions {{ import: {allowing('b.*')} }}")
        ops = peer.after(client)
        weight = b"" if server.kind.is_reference else b"1"  # without it peers close the route
        assert interest(ops, peer) == {b"RS- a.1", b"RS+ b.1", b"RS+ b.2 g " + weight}
        [info] = infos(ops)
        assert info["import"] == {"allow": ["b.*", "mark.*"]}
        assert "nonce" not in info
        assert [info["import"] for info in infos(system.fence())] == [info["import"]]
        client.send(b"SUB a.2 4\r\nSUB b.3 5\r\n")
        assert interest(peer.after(client), peer) == {b"RS+ b.3"}
        reloaded(server)
        ops = peer.after(client)
        assert interest(ops, peer) == {b"RS+ a.1", b"RS+ a.2"}
        assert [info.get("import") for info in infos(ops)] == [None]


def test_export(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, "-D")
    peer = fake.pooled(server)
    peer.tell(b"RS+", GLOBAL, b"a.1", b"b.1", b"b.2 g 1")
    assert subscriptions(server) == ["a.1", "b.1", "b.2"]
    reloaded(server, f"permissions {{ export: {allowing('a.*')} }}")
    [info] = infos(peer.fence())
    assert info["export"] == {"allow": ["a.*", "mark.*"]}
    until(lambda: subscriptions(server) == ["a.1"])
    peer.tell(b"RS+", GLOBAL, b"a.2", b"b.3")
    peer.wait_logged(server, 'DBG Can not export "b.3", ignoring remote subscription request')
    assert subscriptions(server) == ["a.1", "a.2"]
    assert monitor(server, "/routez")["export"] == info["export"]
    reloaded(server)
    peer.fence()
    peer.tell(b"RS+", GLOBAL, b"b.3")
    assert subscriptions(server) == ["a.1", "a.2", "b.3"]


def test_a_peer_exports_more(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch)
    peer = fake.pooled(server, export={"allow": ["a.*"]})
    with subscriber(server, b"a.1", b"b.1") as client:
        assert interest(peer.after(client), peer) == {b"RS+ a.1", b"RS+ b.1"}
        export = {"allow": ["a.*", "b.*"]}
        peer.tell(b"INFO", GLOBAL)
        peer.send(fake.info(route_pool_size=POOL, export=export))
        found = interest(peer.fence() + peer.after(client), peer)
        assert {b"RS+ b.1"} <= found <= {b"RS+ a.1", b"RS+ b.1"}
        [route] = monitor(server, "/routez")["routes"]
        assert route["export"] == export


# -- pools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 5])
def test_the_size_of_pools(
    launch: Launch, fake: Fake, listener: RouteListener, listening: Fake, size: int
) -> None:
    routes = f"routes: ['{listener.url}']\n"
    server = launch_routed(launch, "-D", cluster=routes)
    *dialled, dialled_system = listening.serve(listener)
    accepted = [fake.dial(server, route_pool_size=POOL, route_pool_idx=n or None) for n in range(POOL)]
    accepted_system = fake.pinned(server)
    reloaded(server, f"{routes}pool_size: {size}")
    for peer in [*dialled, *accepted]:
        peer.rest()
        peer.wait_logged(server, REMOVED, begins=True)
    for peer in dialled_system, accepted_system:
        peer.fence()
    assert fake.greet(server).info["route_pool_size"] == size
    again = listening.serve(listener, size, size=size)
    assert [peer.info.get("route_pool_idx", 0) for peer in again] == list(range(size))
    index = pool_index(GLOBAL, size) or None
    with subscriber(server, b"foo") as client:
        peer = fake.dial(server, route_pool_size=size, route_pool_idx=index)
        assert interest(peer.opening + peer.after(client), peer) == {b"RS+ foo"}


def test_no_pools(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, "-D")
    peers = [fake.pooled(server), fake.pinned(server)]
    reloaded(server, "pool_size: -1")
    for peer in peers:
        peer.rest()
        peer.wait_logged(server, REMOVED, begins=True)
    alone = fake.dial(server)
    assert "route_pool_size" not in alone.info
    reloaded(server)
    alone.rest()
    fake.pooled(server).fence()
    fake.pinned(server).fence()


# -- accounts with routes of their own -----------------------------------------------------------------------


def asked(peer: RoutePeer) -> dict[str, Any]:
    """Return the next INFO's members that are not empty."""
    info = parse_info(peer.await_op(re.compile(b"^INFO .*route_acc_add_reqid")))
    return {name: value for name, value in info.items() if value}


def answer(peer: RoutePeer, request: dict[str, Any]) -> None:
    members = {name: value for name, value in request.items() if name != "route_account"}
    peer.send(b"INFO " + json.dumps(members).encode() + b"\r\n")


def test_an_account_is_pinned(launch: Launch, fake: Fake, listener: RouteListener, listening: Fake) -> None:
    routes = f"routes: ['{listener.url}']\n"
    server = launch_routed(launch, "-D", cluster=routes, config=ACCOUNTS)
    pool = listening.serve(listener)
    dialled, accepted = pool[pool_index(A)], fake.pooled(server, A)
    accepted.tell(b"RS+", A, b"x")
    accepted.tell(b"RS+", b"B", b"y")
    with subscriber(server, b"foo", user="a") as client:
        assert interest(accepted.after(client, A), accepted, A) == {b"RS+ foo"}
        start = len(server.log)
        hang_up(server, routed(routes + "accounts: [A]", ACCOUNTS))
        request = asked(accepted)
        number = request["route_acc_add_reqid"]
        assert request == {"route_pool_size": POOL, "route_account": "A", "route_acc_add_reqid": number}
        assert asked(dialled) == request
        answer(accepted, request)
        answer(dialled, request)
        server.wait_log("Reloaded server configuration", start)
        assert TIMED_OUT not in server.log
        assert subscriptions(server) == ["y"]
        client.send(b"SUB bar 9\r\n")
        client.fence()
        assert interest(accepted.fence() + dialled.fence(), accepted, A) == set()
        accepted_pinned = fake.pinned(server, A)
        ops = accepted_pinned.opening + accepted_pinned.after(client, A)
        assert interest(ops, accepted_pinned, A) == {b"RS+ foo", b"RS+ bar"}
        dialled_pinned = next_pinned(listening, listener)
        found = interest(dialled_pinned.opening + dialled_pinned.after(client, A), dialled_pinned, A)
        assert found == {b"RS+ foo", b"RS+ bar"}

        reloaded(server, routes, ACCOUNTS)
        for peer in accepted_pinned, dialled_pinned:
            peer.rest()
            peer.wait_logged(server, REMOVED, begins=True)
        for peer in accepted, dialled:
            assert interest(peer.after(client, A), peer, A) == {b"RS+ foo", b"RS+ bar"}
        with pytest.raises(Closed, match='No route for account "A"'):
            fake.pinned(server, A)


def next_pinned(listening: Fake, listener: RouteListener) -> RoutePeer:
    """Answer connections up to that of account A; the reference dials one of the pool as well."""
    while True:
        peer = listening.greeted(listener)
        with suppress(Closed):
            listening.answer(peer)
        if peer.account == A:
            return peer


def test_a_peer_that_does_not_answer(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, config=ACCOUNTS)
    peer = fake.pooled(server, A)
    lines = reloaded(server, "accounts: [A]", ACCOUNTS)
    assert f"WRN] {TIMED_OUT}" in lines
    assert asked(peer)["route_account"] == "A"
    fake.pinned(server, A)


def test_an_account_of_another_connection(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, config=ACCOUNTS)
    index = (pool_index(A) + 1) % POOL
    peer = fake.dial(server, route_pool_size=POOL, route_pool_idx=index or None)
    alone = Fake()
    with alone:
        unpooled = alone.dial(server)
        lines = reloaded(server, "accounts: [A]", ACCOUNTS)
        assert f"WRN] {TIMED_OUT}" not in lines
        ops = peer.fence() + unpooled.fence()
        assert not [op for op in ops if b"route_acc_add_reqid" in op]


def test_a_peer_pins_an_account(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, "-D", config=ACCOUNTS)
    peer = fake.pooled(server, A)
    peer.tell(b"RS+", A, b"x")
    with subscriber(server, b"foo", user="a") as client:
        peer.after(client, A)
        request = {"route_pool_size": POOL, "route_account": "A", "route_acc_add_reqid": "some"}
        peer.send(b"INFO " + json.dumps(request).encode() + b"\r\n")
        assert asked(peer) == {"route_pool_size": POOL, "route_acc_add_reqid": "some"}
        until(lambda: subscriptions(server) == [])
        client.send(b"SUB bar 9\r\n")
        client.fence()
        assert interest(peer.fence(), peer, A) == set()
        pinned = fake.pinned(server, A)
        ops = pinned.opening + pinned.after(client, A)
        assert interest(ops, pinned, A) == {b"RS+ foo", b"RS+ bar"}
    peer.send(b"INFO " + json.dumps(request | {"route_account": "X"}).encode() + b"\r\n")
    assert infos(peer.fence()) == []
    server.wait_log(r'\[ERR\] Error looking up account "X": account missing')


def test_a_pinned_account_goes_and_comes(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, cluster="accounts: [A]", config=ACCOUNTS)
    pinned = fake.pinned(server, A)
    with subscriber(server, b"foo", user="a") as client:
        assert interest(pinned.opening + pinned.after(client, A), pinned, A) == {b"RS+ foo"}
        reloaded(server, "accounts: [A]", WITHOUT_A)
    pinned.fence()
    reloaded(server, "accounts: [A]", ACCOUNTS)
    with subscriber(server, b"bar", user="a") as client:
        assert b"RS+ bar" in interest(pinned.after(client, A), pinned, A)


# -- what peers and clients are told -------------------------------------------------------------------------


def test_no_advertise(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch)
    peer = fake.pooled(server, connect_urls=["1.2.3.4:5"])
    own = ":".join(map(str, server.address))
    with Connection(server.address) as client:
        client.send(connect_op(protocol=1, lang="x", headers=True))
        assert len(client.fence() + client.fence()) == 1  # the INFO behind the first PONG
        reloaded(server, "no_advertise: true")
        assert "connect_urls" not in fake.greet(server).info
        reloaded(server)
        assert fake.greet(server).info["connect_urls"] == [own]
        if not server.kind.is_reference:
            assert [info.get("connect_urls") for info in infos(peer.fence())] == [None, [own]]
            told = [info.get("connect_urls") for info in infos(client.fence())]
            assert told == [None, [own, "1.2.3.4:5"]]


def test_advertise(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch)
    peer = fake.pooled(server)
    reloaded(server, "advertise: 'h:5'")
    told = [fake.greet(server).info]
    if not server.kind.is_reference:
        told += infos(peer.fence())
    for info in told:
        assert (info["host"], info["port"], info["ip"]) == ("h", 5, "nats-route://h:5/")
        assert ("nonce" in info) == (info is told[0])


def test_pings(launch: Launch, fake: Fake) -> None:
    server = launch_routed(launch, cluster="ping_interval: '1s', ping_max: 100")
    peer = fake.pooled(server)
    peer.await_op(PING)
    reloaded(server, "ping_interval: '1s', ping_max: 1")
    peer.answers_pings = False
    assert b"-ERR 'Stale Connection'\r\n" in peer.rest()


def test_notices_are_logged_once(launch: Launch) -> None:
    server = launch_routed(launch)
    lines = reload(server, routed("pool_size: 2, routes: ['nats://127.0.0.1:1']"))
    assert without_always(lines) == ["Reloaded: cluster", "Reloaded: cluster routes"]
    assert SYSTEM == b"$SYS"
