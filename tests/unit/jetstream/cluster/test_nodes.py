"""The table of servers that may be peers, from raw events of other servers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.clock import HeldClock

from gnats.accounts.account import Account
from gnats.accounts.internal_client import Callback, Message
from gnats.events.servers import CHECK_INTERVAL, GONE_AFTER, Servers
from gnats.jetstream.cluster.nodes import Nodes
from gnats.jetstream.cluster.placement import NodeStats
from gnats.log.logger import Logger
from gnats.nkeys.identity import Identity, server_hash
from gnats.options.options import Options
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.jetstream import JetStreamOptions

ME, X, Y = (server_hash(name) for name in ("me", "x", "y"))
STATS = {
    "memory": 1,
    "storage": 2,
    "reserved_memory": 3,
    "reserved_storage": 4,
    "accounts": 5,
    "ha_assets": 6,
    "api": {"level": 1, "total": 2, "errors": 3},
}
JETSTREAM = {"config": {"max_memory": 10, "max_storage": 20, "store_dir": "d"}, "stats": STATS}


class OwnJetStream:
    max_memory, max_store = 100, 200

    def stats(self) -> dict[str, Any]:
        return STATS | {"ha_assets": 1}


class World:
    """A server's table, and the events that fill it."""

    def __init__(self, domain: str = "") -> None:
        self.callbacks: dict[str, Callback] = {}
        self.lines: list[bytes] = []
        self.jetstream: OwnJetStream | None = OwnJetStream()
        self.seq = 0
        self.options = Options(
            server_tags=("a",),
            cluster=ClusterOptions(name="C", port=-1),
            jetstream=JetStreamOptions(domain=domain),
        )
        self.servers = Servers(
            SimpleNamespace(subscribe=lambda subject, call: self.callbacks.update({subject.decode(): call})),  # type: ignore[arg-type]
            SimpleNamespace(server_id="ME", statsz_update=lambda: None),  # type: ignore[arg-type]
            {"A": Account("A")},  # type: ignore[arg-type]
            Logger(self.lines.append, logtime=False, debug=True, trace=False),
            exceeded=lambda account: None,
        )
        self.nodes = self.watch()

    def watch(self) -> Nodes:
        nodes = Nodes(Identity("ME", "me"), lambda: self.options, lambda: self.jetstream)
        self.told: list[str] = []
        nodes.changed.append(self.told.append)
        self.servers.watch(nodes)
        return nodes

    def hear(self, pattern: str, subject: str, body: object, from_server: bool = True) -> None:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.callbacks[pattern](Message(subject.encode(), b"", b"", payload, 7, from_server=from_server))

    def info(self, name: str, **members: object) -> dict[str, object]:
        self.seq += 1
        info = {"name": name, "id": name.upper(), "cluster": "C", "ver": "2.15.1", "flags": 7}
        return info | {"jetstream": True, "seq": self.seq} | members

    def statsz(self, name: str, js: object = JETSTREAM, from_server: bool = True, **members: object) -> None:
        body = {"server": self.info(name, **members), "statsz": {"jetstream": js}}
        self.hear("$SYS.SERVER.*.STATSZ", f"$SYS.SERVER.{name.upper()}.STATSZ", body, from_server)

    def conns(self, name: str, **members: object) -> None:
        body = {"server": self.info(name, **members), "acc": "A", "conns": 1}
        self.hear("$SYS.SERVER.ACCOUNT.*.CONNS", "$SYS.SERVER.ACCOUNT.A.CONNS", body)

    def leave(self, name: str, event: str = "SHUTDOWN", **more: int) -> None:
        body = self.info(name)
        self.hear(f"$SYS.SERVER.*.{event}", f"$SYS.SERVER.{name.upper()}.{event}", body, **more)


@pytest.fixture
async def world(clock: HeldClock) -> World:
    return World()


async def test_statistics_tell_everything(world: World) -> None:
    world.statsz("x", tags=["b", "c"], domain="D")
    node = world.nodes.get(X)
    assert node
    assert (node.name, node.id, node.cluster, node.version) == ("x", "X", "C", "2.15.1")
    assert (node.tags, node.domain, node.js, node.offline) == (("b", "c"), "D", True, False)
    assert (node.max_memory, node.max_store, node.selectable) == (10, 20, True)
    assert node.stats == NodeStats(memory=1, store=2, reserved_memory=3, reserved_store=4, ha_assets=6)
    assert (world.nodes.name_of(X), world.nodes.cluster_of(X), world.nodes.is_online(X)) == ("x", "C", True)


async def test_an_unknown_peer_has_no_name(world: World) -> None:
    nodes = world.nodes
    assert (nodes.get(X), nodes.name_of(X), nodes.cluster_of(X), nodes.is_online(X)) == (None, "", "", False)


async def test_this_server_is_known_as_it_is_now(world: World) -> None:
    nodes = world.nodes
    own = nodes.get(ME)
    assert own
    assert (nodes.peer, own.name, own.id, own.cluster, own.tags) == (ME, "me", "ME", "C", ("a",))
    assert (own.max_memory, own.max_store, own.js) == (100, 200, True)
    assert own.stats
    assert (own.stats.reserved_store, own.stats.ha_assets) == (4, 1)
    world.jetstream = None
    assert nodes.get(ME) is None
    assert nodes.active_peers() == []


async def test_nobody_speaks_for_this_server(world: World) -> None:
    world.statsz("me", id="OTHER", cluster="D")
    assert world.nodes.cluster_of(ME) == "C"
    assert list(world.nodes.placement()) == [ME]


async def test_active_peers_are_all_that_are_online(world: World) -> None:
    world.statsz("x")
    world.statsz("y", None, flags=0, jetstream=False)
    assert world.nodes.active_peers() == [ME, X, Y]
    assert [node.js for node in world.nodes.placement().values()] == [True, True, False]
    world.leave("x")
    assert world.nodes.active_peers() == [ME, Y]


@pytest.mark.parametrize("event", ["SHUTDOWN", "LAMEDUCK"])
async def test_a_server_that_goes_is_offline_until_it_comes_back(world: World, event: str) -> None:
    world.statsz("x")
    world.leave("x", event)
    assert not world.nodes.is_online(X)
    assert world.nodes.name_of(X) == "x"
    world.statsz("x", id="AGAIN")
    assert world.nodes.is_online(X)
    assert world.told == [X, X, X]


async def test_a_late_end_does_not_concern_the_server_that_has_the_name_now(world: World) -> None:
    world.statsz("x")
    world.statsz("x", id="AGAIN")
    world.leave("x")
    assert world.nodes.is_online(X)


async def test_a_silent_server_is_offline(world: World, clock: HeldClock) -> None:
    world.statsz("x")
    await clock.advance(GONE_AFTER + CHECK_INTERVAL)
    assert not world.nodes.is_online(X)


async def test_a_server_without_jetstream_is_forgotten_when_it_goes(world: World) -> None:
    world.statsz("x", None, flags=0, jetstream=False)
    world.leave("x")
    assert X not in world.nodes.placement()
    assert world.told == [X, X]


async def test_another_event_tells_of_unknown_servers_only(world: World) -> None:
    world.conns("x")
    node = world.nodes.get(X)
    assert node
    assert (node.js, node.selectable, node.max_memory, node.stats) == (True, False, None, None)
    world.statsz("x")
    world.conns("x", cluster="D")
    assert world.nodes.get(X) != node
    assert world.nodes.cluster_of(X) == "C"
    assert world.told == [X, X]


async def test_changes_are_told_but_not_each_use(world: World) -> None:
    world.statsz("x")
    world.statsz("x", JETSTREAM | {"stats": STATS | {"storage": 9}})
    assert world.told == [X]
    world.statsz("x", cluster="D")
    world.statsz("x", None, flags=0, jetstream=False)
    assert world.told == [X, X, X]
    node = world.nodes.get(X)
    assert node
    assert not (node.js or node.selectable)


@pytest.mark.parametrize(
    ("own", "other", "known"),
    [("", "", True), ("D", "", True), ("", "E", True), ("D", "D", True), ("D", "E", False)],
)
async def test_domains(clock: HeldClock, own: str, other: str, known: bool) -> None:
    world = World(own)
    world.statsz("x", domain=other)
    assert (world.nodes.get(X) is not None) == known


async def test_an_older_event_changes_nothing(world: World) -> None:
    world.statsz("x", seq=9)
    world.statsz("x", seq=8, cluster="D")
    assert world.nodes.cluster_of(X) == "C"


async def test_old_servers_have_no_flags(world: World) -> None:
    world.statsz("x", flags=0)
    world.statsz("y", jetstream=False)
    assert [node.js for node in world.nodes.placement().values()] == [True, True, True]


async def test_what_was_heard_before_the_table_is_in_it(world: World) -> None:
    world.statsz("x")
    world.conns("y")
    nodes = world.watch()
    assert nodes.placement() == world.nodes.placement()
    assert nodes.active_peers() == [ME, X, Y]


async def test_clients_do_not_speak_for_servers(world: World) -> None:
    world.statsz("x", from_server=False)
    assert world.nodes.get(X) is None
    world.statsz("x")
    world.statsz("x", cluster="D", from_server=False)
    world.leave("x", from_server=False)
    assert world.nodes.is_online(X)
    assert world.nodes.cluster_of(X) == "C"


async def test_most_numbers_are_carried(world: World) -> None:
    most = (1 << 64) - 1
    world.statsz(
        "x",
        {
            "config": {"max_memory": -(1 << 63), "max_storage": (1 << 63) - 1},
            "stats": {"storage": most, "reserved_storage": most, "ha_assets": -1},
        },
    )
    node = world.nodes.get(X)
    assert node
    assert (node.available("memory"), node.available("file")) == (0, 0)


@pytest.mark.parametrize(
    "jetstream",
    [
        "1",
        "[]",
        '{"config": 1}',
        '{"config": {"max_memory": 9223372036854775808}}',
        '{"config": {"max_storage": "1"}}',
        '{"config": {"max_storage": 1.5}}',
        '{"stats": []}',
        '{"stats": {"memory": -1}}',
        '{"stats": {"reserved_storage": 18446744073709551616}}',
        '{"stats": {"reserved_memory": 1%s}}' % ("0" * 5000),
        '{"stats": {"ha_assets": null, "storage": {}}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
async def test_statistics_of_wrong_types_are_refused(world: World, jetstream: str) -> None:
    server = json.dumps(world.info("x"))
    body = f'{{"server": {server}, "statsz": {{"jetstream": {jetstream}}}}}'
    world.hear("$SYS.SERVER.*.STATSZ", "$SYS.SERVER.X.STATSZ", body.encode())
    assert world.nodes.get(X) is None
    assert [line.split(b"] ", 1)[1] for line in world.lines] == [
        b"[DBG] Received bad server info for remote server update\n"
    ]


@pytest.mark.parametrize("server", ["null", "{}", '{"id": "X"}', '{"id": "X", "name": null}'])
async def test_a_server_without_a_name_is_no_peer(world: World, server: str) -> None:
    world.hear("$SYS.SERVER.*.STATSZ", "$SYS.SERVER.X.STATSZ", b'{"server": %s}' % server.encode())
    assert list(world.nodes.placement()) == [ME]
