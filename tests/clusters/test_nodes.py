"""What gnats and nats-servers with JetStream know of each other, from their statistics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import Launch, launcher, require
from support.monitor import monitor
from support.observers import Observer
from support.routepeer import POOL
from support.servers import REFERENCE, Server, until

from gnats import Options
from gnats.go.url import URL
from gnats.jetstream.cluster.nodes import Node
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.nkeys.identity import server_hash
from gnats.options.values.cluster import ClusterOptions
from gnats.options.values.jetstream import JetStreamOptions
from gnats.testing import ServerThread
from gnats.version import NATS_VERSION

pytestmark = pytest.mark.timeout(180)

NO_PEERS = 10005
MEMORY, STORE = 1 << 20, 1 << 30
ACCOUNTS = """
accounts {
  $SYS { users: [ { user: s, password: p } ] }
  A { jetstream: enabled, users: [ { user: a, password: p } ] }
}
"""
NAMES = "s0", "s1", "gnats"
S0, S1, GNATS = map(server_hash, NAMES)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    require(REFERENCE)
    with launcher(REFERENCE, tmp_path) as launch:
        yield launch


@pytest.fixture
def cluster(launch: Launch, tmp_path: Path) -> Cluster:
    """Two nats-servers."""

    def config(number: int) -> str:
        limits = f"max_mem: {MEMORY}, max_file: {STORE}, unique_tag: az, limits {{ max_ha_assets: 9 }}"
        directory = tmp_path / str(number)
        return (
            f"jetstream {{ store_dir: '{directory}', {limits} }}\nserver_tags: [az:{number}, Big]\n{ACCOUNTS}"
        )

    cluster = Cluster(launch, [REFERENCE] * 2, config=config)
    cluster.wait_mesh()
    return cluster


@contextmanager
def running(cluster: Cluster, directory: Path, *, joins: bool) -> Iterator[ServerThread]:
    """Run a gnats with JetStream in their cluster; with `joins`, it is a member of the meta group."""
    jetstream = JetStreamOptions(
        store_dir=str(directory), max_memory=MEMORY, max_store=STORE, unique_tag="az"
    )
    jetstream = replace(jetstream, enabled=joins, limits=replace(jetstream.limits, max_ha_assets=9))
    routes = [URL("nats-route", host=cluster.route_url(number).split("//")[1]) for number in range(2)]
    thread = ServerThread(
        Options(
            port=-1,
            server_name="gnats",
            server_tags=("az:2", "big"),
            cluster=ClusterOptions(name=cluster.name, host="127.0.0.1", port=-1, routes=tuple(routes)),
        )
    )

    async def enable() -> None:
        server = thread.server
        server.opts = replace(server.opts, jetstream=jetstream)
        await server.enable_jetstream()

    with thread:
        thread.run(enable())
        yield thread


@pytest.fixture
def gnats(cluster: Cluster, tmp_path: Path) -> Iterator[ServerThread]:
    """A gnats with JetStream, outside the meta group."""
    with running(cluster, tmp_path / "gnats", joins=False) as thread:
        yield thread


@pytest.fixture
def joined(cluster: Cluster, tmp_path: Path) -> Iterator[ServerThread]:
    """A gnats that joins the meta group once this has a leader."""
    until(lambda: meta_cluster(cluster[0]).get("leader"), 60)
    with running(cluster, tmp_path / "gnats", joins=True) as thread:
        yield thread


def nodes_of(gnats: ServerThread) -> dict[str, Node]:
    return gnats.call(lambda server: server.nodes.placement() if server.nodes else {})


class Member(Observer):
    """The part of a gnats in the meta group."""

    def __init__(self) -> None:
        super().__init__(GNATS)

    async def join(self, gnats: ServerThread) -> None:
        server = gnats.server
        assert server.jetstream
        assert server.system_account
        peers = [GNATS.encode()]
        self.group = await RaftGroup.open(
            server.jetstream.shared,
            server.system_account,
            "_meta_",
            self,
            peer=peers[0],
            peers=lambda: (3, peers),
            managed=False,
        )
        self.group.begin(recovering=True, observer=True)

    def peers(self, stream: str) -> tuple[str, ...]:
        """Return the peers of a stream, none before it is assigned."""
        return next((each.group.peers for each in self.meta.streams() if each.config.name == stream), ())


def meta_cluster(server: Server) -> dict[str, Any]:
    """Return what a server says of the meta group."""
    found: dict[str, Any] = monitor(server, "/jsz").get("meta_cluster", {})
    return found


def replica(server: Server, name: str) -> dict[str, Any]:
    """Return what a server says of another one in the meta group; only the leader knows."""
    replicas = meta_cluster(server).get("replicas") or []
    return next((each for each in replicas if each["name"] == name), {})


def create_on_gnats(server: Server, name: str, max_bytes: int) -> dict[str, Any]:
    """Ask for a stream whose placement is gnats; return the answer, {} when none comes.

    None comes from a gnats that has been given the stream, and does not make it.
    """
    placement = {"tags": ["az:2"]}
    config = {"name": name, "subjects": [name], "max_bytes": max_bytes, "placement": placement}
    with Caller(server, "a", "p") as caller:
        caller.connection.sock.settimeout(2)
        try:
            answer: dict[str, Any] = caller.request(f"$JS.API.STREAM.CREATE.{name}", config).json
        except TimeoutError:
            return {}
    return answer


def statistics(server: Server, *names: str) -> dict[str, Any]:
    """Return the next STATSZ of each of the servers, which `server` has got, too."""
    found: dict[str, Any] = {}
    with Caller(server, "s", "p") as caller:
        caller.subscribe("$SYS.SERVER.*.STATSZ")
        while found.keys() != set(names):
            event = caller.next().json
            if event["server"]["jetstream"] and event["server"]["name"] in names:
                found[event["server"]["name"]] = event
        asked = caller.connection.info["server_id"]
        caller.request(f"$SYS.REQ.SERVER.{asked}.VARZ")  # it has handled the events before it answers this
    return found


def shape(value: Any) -> Any:
    """Return the names and types of all members."""
    if isinstance(value, dict):
        return {name: shape(member) for name, member in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value)


def test_gnats_knows_nats_servers(cluster: Cluster, gnats: ServerThread) -> None:
    until(lambda: sum(node.selectable for node in nodes_of(gnats).values()) == 3)
    nodes = nodes_of(gnats)
    assert set(nodes) == {S0, S1, GNATS}
    assert {node.name for node in nodes.values()} == set(NAMES)
    for number, node in enumerate((nodes[S0], nodes[S1])):
        assert (node.cluster, node.version, node.js, node.offline) == (
            cluster.name,
            NATS_VERSION,
            True,
            False,
        )
        assert (node.max_memory, node.max_store) == (MEMORY, STORE)
        assert node.tags == (f"az:{number}", "big")
        assert node.stats
        assert node.stats.ha_assets == 1
    assert gnats.call(lambda server: server.nodes.active_peers())[0] == GNATS  # type: ignore[union-attr]
    until(lambda: [route.get("remote_name") for route in cluster.routes(1)].count("gnats") == POOL + 1)
    cluster[1].stop()
    until(lambda: nodes_of(gnats)[S1].offline)
    assert not nodes_of(gnats)[S0].offline


def meta_of(joined: ServerThread) -> dict[str, Any]:
    """Return what gnats says of the meta group."""
    return joined.call(lambda server: server.varz()["jetstream"]["meta"])  # type: ignore[index,no-any-return]


def test_gnats_describes_itself_as_a_nats_server_does(cluster: Cluster, joined: ServerThread) -> None:
    """Neither of the two servers that are compared leads the meta group."""
    until(lambda: len(nodes_of(joined)) == 3)
    until(lambda: meta_of(joined).get("leader") in NAMES[:2], 60)
    leader = NAMES.index(meta_of(joined)["leader"])
    until(lambda: replica(cluster[leader], "gnats").get("current"), 60)
    follower = NAMES[1 - leader]
    until(lambda: meta_cluster(cluster[1 - leader]).get("leader") == NAMES[leader])
    events = statistics(cluster[leader], follower, "gnats")
    theirs, ours = events[follower], events["gnats"]
    assert ours["server"]["flags"] == theirs["server"]["flags"]
    assert shape(ours["server"]) == shape(theirs["server"])
    theirs, ours = theirs["statsz"]["jetstream"], ours["statsz"]["jetstream"]
    assert shape(ours) == shape(theirs)
    assert (ours["config"], ours["limits"]) == (theirs["config"], theirs["limits"])
    for name in ("name", "leader", "peer", "cluster_size", "quorum_needed"):
        assert ours["meta"][name] == theirs["meta"][name]
    ours, theirs = meta_of(joined), monitor(cluster[1 - leader], "/varz")["jetstream"]["meta"]
    assert ours["name"] == theirs["name"]
    assert [(each["name"], each["current"]) for each in ours["replicas"]] == [
        (name, name == NAMES[leader]) for name in NAMES[:2]
    ]
    assert shape(ours) == shape(theirs)


def test_a_nats_server_places_streams_on_gnats_by_its_statistics(
    cluster: Cluster, gnats: ServerThread
) -> None:
    """What gnats reserves counts at once, and a stream that is too large for the rest goes nowhere."""
    member = Member()
    gnats.run(member.join(gnats))
    leader = until(
        lambda: next((each for each in cluster.servers if replica(each, "gnats").get("current")), None), 60
    )
    assert "offline" not in replica(leader, "gnats")
    assert statistics(leader, "gnats")["gnats"]["statsz"]["jetstream"]["stats"]["ha_assets"] == 1
    assert create_on_gnats(leader, "half", STORE // 2) == {}
    until(lambda: member.peers("half") == (GNATS,))
    gnats.call(lambda server: server.jetstream._resources.reserve("file", STORE // 2 + 1))  # type: ignore[union-attr]
    event = statistics(leader, "gnats")["gnats"]
    assert event["statsz"]["jetstream"]["stats"]["reserved_storage"] == STORE // 2 + 1
    assert create_on_gnats(leader, "second", STORE // 2)["error"]["err_code"] == NO_PEERS
    assert create_on_gnats(leader, "third", STORE // 2 - 1) == {}
    until(lambda: member.peers("third") == (GNATS,))
    gnats.call(lambda _: member.group.close())
    gnats.stop()
    until(lambda: replica(leader, "gnats").get("offline"))
