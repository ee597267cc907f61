"""What servers tell each other of further servers, and whom they dial because of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from support.clusters import launch_routed
from support.launch import Launch
from support.monitor import monitor
from support.routepeer import POOL, Fake, RouteListener, RoutePeer
from support.servers import Server, until

from .cases import params

pytestmark = pytest.mark.timeout(60)

LOGIN = {"connect": {"user": "cu", "pass": "cp"}}
BLOCK = "authorization { user: cu, password: cp }\n"


class Listening(Fake):
    """A fake server with a listener, to which its INFO leads."""

    def __init__(self, **members: Any) -> None:
        self.listener = RouteListener()
        super().__init__(port=self.listener.port, **members)

    def close(self) -> None:
        super().close()
        self.listener.close()

    def gossip(self, **changes: Any) -> bytes:
        """Encode the INFO with which another server tells of this one."""
        return self.info(**{"ip": f"{self.listener.url}/", "route_pool_size": POOL} | changes)


@pytest.fixture
def fakes() -> Iterator[list[Listening]]:
    """Four servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(Listening()) for _ in range(4)]


def dialling(launch: Launch, *fakes: Listening, block: str = "") -> Server:
    """Start a server whose routes name these fakes."""
    routes = json.dumps([fake.listener.url for fake in fakes])
    return launch_routed(launch, "-D", cluster=f"routes: {routes}\n{BLOCK}{block}")


def heard(*peers: RoutePeer, number: int = 1) -> list[list[dict[str, Any]]]:
    """Wait until that many INFOs in all have come to the peers since the last call; return each peer's."""
    infos: list[list[dict[str, Any]]] = [[] for _ in peers]

    def enough() -> bool:
        for peer, found in zip(peers, infos, strict=True):
            found += [json.loads(op[5:]) for op in peer.fence() if op.startswith(b"INFO ")]
        return sum(map(len, infos)) >= number

    until(enough)
    return infos


def modes(*peers: RoutePeer, number: int = 1) -> list[list[tuple[str, int]]]:
    """As `heard`; return the servers that each peer has been told of, with the mode of that gossip."""
    return [
        [(info["server_id"], info.get("gossip_mode", 0)) for info in infos]
        for infos in heard(*peers, number=number)
    ]


def test_explicit_routes_hear_of_an_accepted_one(launch: Launch, fakes: list[Listening]) -> None:
    """Over one connection of each remote, and with mode 2: tell others."""
    known, new, *_ = fakes
    server = dialling(launch, known)
    pool = known.serve(known.listener)
    new.dial(server, **LOGIN, route_pool_size=POOL)
    told = modes(*pool)
    assert sorted(told) == [[], [], [], [(new.id, 2)]]
    assert not told[-1], "the system account's connection"
    new.dial(server, **LOGIN, route_pool_size=POOL, route_pool_idx=1)
    assert modes(*pool, number=0) == [[]] * 4


def test_accepted_routes_hear_of_an_accepted_one(launch: Launch, fakes: list[Listening]) -> None:
    """With mode 1: tell nobody."""
    known, new, *_ = fakes
    server = dialling(launch)
    peer = known.dial(server, **LOGIN, route_pool_size=POOL)
    assert modes(peer, number=0) == [[]]
    other = new.dial(server, **LOGIN, route_pool_size=POOL)
    assert modes(peer, other) == [[(new.id, 1)], []]


def test_accepted_routes_hear_of_an_explicit_one(launch: Launch, fakes: list[Listening]) -> None:
    """Not of its system account's connection, while that account has no other."""
    known, new, *_ = fakes
    server = dialling(launch, new)
    peer = known.dial(server, **LOGIN, route_pool_size=POOL)
    new.serve(new.listener)
    assert modes(peer) == [[(new.id, 2)]]


def test_what_is_told(launch: Launch, fakes: list[Listening]) -> None:
    """The new server's INFO with a mode and an address, and without its nonce and what is not known."""
    known, new, *_ = fakes
    server = dialling(launch)
    peer = known.dial(server, **LOGIN, route_pool_size=POOL)
    new.dial(
        server,
        **LOGIN,
        **{
            "import": {"allow": ["a.>"]},
            "route_pool_size": 5,
            "route_pool_idx": 1,
            "connect_urls": ["1.1.1.1:1"],
            "nonce": "abcdefghijk",
            "unheard_of": True,
            "headers": None,
            "auth_required": True,
        },
    )
    told = peer.await_op(b"INFO ")
    expected = [
        ("server_id", new.id),
        ("server_name", new.name),
        ("version", "2.15.1"),
        ("proto", 3),
        ("go", "go1.25"),
        ("host", "127.0.0.1"),
        ("port", new.listener.port),
        ("headers", False),
        ("auth_required", True),
        ("max_payload", 1 << 20),
        ("ip", f"{new.listener.url}/"),
        ("cluster", "C"),
        ("connect_urls", ["1.1.1.1:1"]),
        ("import", {"allow": ["a.>"]}),
        ("lnoc", True),
        ("lnocu", True),
        ("route_pool_size", 5),
        ("route_pool_idx", 1),
        ("gossip_mode", 1),
    ]
    assert json.loads(told[5:], object_pairs_hook=list) == [
        (name, [("allow", ["a.>"])] if name == "import" else value) for name, value in expected
    ]
    assert told.endswith(b"}\r\n")
    assert rb'"a.\u003e"' in told


def test_an_address_of_its_own_is_kept(launch: Launch, fakes: list[Listening]) -> None:
    known, new, *_ = fakes
    server = dialling(launch)
    peer = known.dial(server, **LOGIN, route_pool_size=POOL)
    new.dial(server, **LOGIN, route_pool_size=POOL, ip="nats-route://1.2.3.4:5/")
    assert [[info["ip"] for info in infos] for infos in heard(peer)] == [["nats-route://1.2.3.4:5/"]]


def test_a_server_that_wants_no_gossip(launch: Launch, fakes: list[Listening]) -> None:
    known, new, *_ = fakes
    server = dialling(launch, known)
    pool = known.serve(known.listener)
    new.dial(server, **LOGIN, route_pool_size=POOL, gossip_mode=1)
    assert modes(*pool, number=0) == [[]] * 4


def test_a_pinned_connection_is_told_of_over_the_others(launch: Launch, fakes: list[Listening]) -> None:
    known, new, half, plain = fakes
    server = dialling(launch, known)
    pool = known.serve(known.listener)
    single = half.dial(server, **LOGIN, route_pool_size=POOL)
    old = plain.dial(server, **LOGIN)
    heard(*pool, single, number=3)  # of half and plain, and of plain
    new.dial(server, **LOGIN, account=b"$SYS", route_pool_size=POOL, route_account="$SYS")
    assert modes(*pool) == [[], [], [], [(new.id, 2)]]
    ((info,),) = heard(single)
    assert (info["server_id"], info["route_account"], info["gossip_mode"]) == (new.id, "$SYS", 1)
    assert modes(old, number=0) == [[]]


def test_whoever_is_told_of_is_dialled(launch: Launch, fakes: list[Listening]) -> None:
    """With the cluster's own login, and a pool; what the new server says goes no further."""
    known, new, *_ = fakes
    server = dialling(launch, known)
    pool = known.serve(known.listener)
    pool[1].send(new.gossip(auth_required=True))
    first = new.greeted(new.listener)
    assert (first.connect["user"], first.connect["pass"]) == ("cu", "cp")
    new.answer(first)
    assert "gossip_mode" not in first.info
    rest = new.serve(new.listener, POOL - 1)
    assert [peer.info["route_pool_idx"] for peer in rest] == [1, 2]
    assert modes(*pool, number=0) == [[]] * 4
    found = [route for route in monitor(server, "/routez")["routes"] if route["remote_id"] == new.id]
    assert [(route["did_solicit"], route["is_configured"]) for route in found] == [(True, False)] * POOL


def test_without_login(launch: Launch, fakes: list[Listening]) -> None:
    known, new, *_ = fakes
    dialling(launch, known)
    known.serve(known.listener)[0].send(new.gossip())
    assert "user" not in new.accept(new.listener).connect


def test_a_pinned_account_is_dialled_alone(launch: Launch, fakes: list[Listening]) -> None:
    known, new, *_ = fakes
    dialling(launch, known)
    *_, system = known.serve(known.listener)
    system.send(new.gossip(route_account="$SYS"))
    peer = new.greeted(new.listener)
    assert peer.account == b"$SYS"
    new.answer(peer)
    peer.fence()
    assert not new.listener.pending()


def test_a_remote_without_pool_tells_for_all_accounts(launch: Launch, fakes: list[Listening]) -> None:
    known, new, *_ = fakes
    server = dialling(launch)
    known.dial(server, **LOGIN).send(new.gossip())
    pair = new.greeted(new.listener), new.greeted(new.listener)
    assert {peer.account for peer in pair} == {b"", b"$SYS"}


MODES: dict[str, tuple[int, int | None]] = {
    "told to tell": (2, 0),
    "told not to": (1, None),
    "by default": (0, None),
}


@pytest.mark.parametrize(("mode", "told"), params(MODES))
def test_the_mode_goes_on(launch: Launch, fakes: list[Listening], mode: int, told: int | None) -> None:
    """The server that is dialled learns it, and others hear of it when the mode says so."""
    known, new, *_ = fakes
    server = dialling(launch, known)
    pool = known.serve(known.listener)
    pool[0].send(new.gossip(gossip_mode=mode))
    peer = new.answer(new.greeted(new.listener))
    assert peer.info.get("gossip_mode", 0) == mode
    until(lambda: new.id in {route["remote_id"] for route in monitor(server, "/routez")["routes"]})
    said = modes(*pool, number=told is not None)
    assert [line for lines in said for line in lines] == ([] if told is None else [(new.id, told)])


def test_whom_it_knows_it_does_not_dial(launch: Launch, fakes: list[Listening]) -> None:
    """Neither a connected server nor one of its routes; then one that it does not know, as a mark."""
    known, connected, new, configured = fakes
    server = dialling(launch, known, configured)
    pool = known.serve(known.listener)
    configured_pool = configured.greeted(configured.listener), configured.greeted(configured.listener)
    connected.dial(server, **LOGIN, route_pool_size=POOL)
    pool[0].send(connected.gossip() + configured.gossip() + known.gossip() + new.gossip())
    new.accept(new.listener)
    pool[0].fence()
    assert not connected.listener.pending()
    assert not configured.listener.pending()
    for peer in configured_pool:
        peer.fence()


def test_gossip_about_the_listener_itself_closes(launch: Launch, fakes: list[Listening]) -> None:
    known, *_ = fakes
    server = dialling(launch)
    peer = known.dial(server, **LOGIN, route_pool_size=POOL)
    peer.send(known.gossip(server_id=peer.info["server_id"]))
    assert peer.rest() == []
    peer.wait_logged(server, f"INF Router connection closed: Duplicate Route - Remote: {known.name}")


def test_an_implicit_route_is_dialled_again(launch: Launch, fakes: list[Listening]) -> None:
    known, new, *_ = fakes
    server = dialling(launch, known)
    known.serve(known.listener)[0].send(new.gossip())
    new.answer(new.greeted(new.listener)).close()
    new.answer(new.greeted(new.listener))
    server.wait_log(rf'\[DBG\] Attempting reconnect for solicited route "{new.listener.url}/"\n')


def test_an_implicit_route_that_does_not_answer(launch: Launch, fakes: list[Listening]) -> None:
    known, new, *_ = fakes
    new.listener.close()
    server = dialling(launch, known)
    known.serve(known.listener)[0].send(new.gossip())
    error = f"dial tcp 127.0.0.1:{new.listener.port}: connect: connection refused"
    server.wait_log(rf"\[ERR\] Error trying to connect to route \(attempt 1\): {error}\n")


def test_two_servers_meet_through_a_third(launch: Launch) -> None:
    """Gossip alone joins them: neither names the other."""
    with Fake() as fake:
        hub = launch_routed(launch, "-D", config="server_name: hub")
        port = fake.greet(hub).info["port"]
        names = f"routes: ['nats-route://127.0.0.1:{port}']"
        servers = [
            hub,
            *(launch_routed(launch, config=f"server_name: s{n}", cluster=names) for n in range(2)),
        ]

        def met() -> bool:
            found = [
                sorted({route["remote_name"] for route in monitor(server, "/routez")["routes"]})
                for server in servers
            ]
            return found == [["s0", "s1"], ["hub", "s1"], ["hub", "s0"]]

        until(met)
