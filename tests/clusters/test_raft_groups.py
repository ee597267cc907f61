"""Raft groups of gnats and nats-server together: gnats takes part in the meta group of nats-servers.

gnats does not carry out what that group decides: here it keeps the entries, votes and acknowledges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import Launch, launcher, require
from support.monitor import monitor
from support.servers import REFERENCE, Server, until

from gnats.go.url import URL
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.nkeys.identity import server_hash
from gnats.options.values.cluster import ClusterOptions
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(180)

META = "_meta_"
NORMAL = 0
EXISTS = 10058
ASSIGN_STREAM, REMOVE_STREAM = 0, 2


class Witness:
    """A gnats that is a member of the meta group, but never leads it."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.directory = directory
        self.streams: dict[str, dict[str, Any]] = {}
        self.snapshots = 0
        routes = [URL("nats-route", host=cluster.route_url(number).split("//")[1]) for number in range(2)]
        self.thread = ServerThread(
            server_name="witness",
            cluster=ClusterOptions(name=cluster.name, host="127.0.0.1", port=-1, routes=tuple(routes)),
        )

    def start(self) -> None:
        self.thread.start()
        self.group: RaftGroup = self.thread.run(self.open())

    async def open(self) -> RaftGroup:
        server = self.thread.server
        server.opts = replace(
            server.opts, jetstream=replace(server.opts.jetstream, store_dir=str(self.directory))
        )
        await server.enable_jetstream()
        assert server.jetstream
        peer = server_hash(server.name).encode()
        group = await RaftGroup.open(
            server.jetstream.shared,
            server.system_account,
            META,
            self,
            peer=peer,
            peers=lambda: (3, [peer]),
            managed=False,
        )
        group.begin(recovering=True, observer=True)
        return group

    def stop(self) -> None:
        self.thread.call(lambda _: self.group.close())
        self.thread.stop()

    def state(self) -> dict[str, Any]:
        return self.thread.call(lambda _: self.group.node.state())

    # -- the group's state machine --

    def apply(self, index: int, entries: list[tuple[int, bytes]]) -> None:
        for kind, data in entries:
            if kind == NORMAL and data[0] == ASSIGN_STREAM:
                assignment = json.loads(data[1:])
                self.streams[assignment["stream"]["name"]] = assignment
            elif kind == NORMAL and data[0] == REMOVE_STREAM:
                del self.streams[json.loads(data[1:])["stream"]["name"]]

    def restore(self, data: bytes) -> None:
        self.snapshots += 1

    def lead(self, term: int) -> None:
        raise AssertionError("an observer leads")

    def follow(self) -> None: ...

    def stopped(self, why: str) -> None:
        raise AssertionError(why)


def meta_leader(server: Server) -> str:
    return str(monitor(server, "/jsz").get("meta_cluster", {}).get("leader", ""))


def create(server: Server, name: str) -> None:
    def made() -> bool:
        with Caller(server) as caller:
            caller.connection.sock.settimeout(2)  # without a leader nobody answers
            try:
                found = caller.request(
                    f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [name]}
                ).json
            except TimeoutError:
                return False
            return found.get("error", {}).get("err_code") in (None, EXISTS)

    until(made, 60)


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    require(REFERENCE)
    with launcher(REFERENCE, tmp_path) as launch:
        yield launch


def test_a_meta_group_needs_its_gnats(launch: Launch, tmp_path: Path) -> None:
    """One of two nats-servers ends: the other one leads by the vote of gnats, and commits by its answers."""
    cluster = Cluster(
        launch,
        [REFERENCE] * 2,
        config=lambda number: f"jetstream {{ store_dir: '{tmp_path / str(number)}' }}",
    )
    cluster.wait_mesh()
    create(cluster[0], "first")
    witness = Witness(cluster, tmp_path / "gnats")
    witness.start()
    try:
        until(lambda: "first" in witness.streams, 20)
    except TimeoutError:
        print(witness.state()); print(monitor(cluster[0], "/raftz?acc=$SYS")); print(monitor(cluster[1], "/raftz?acc=$SYS"))
        raise
    until(lambda: len(witness.state()["peers"]) == 3, 60)
    create(cluster[1], "second")
    until(lambda: "second" in witness.streams)

    leader = next(number for number in range(2) if meta_leader(cluster[0]) == f"s{number}")
    other = 1 - leader
    cluster.kill(leader)
    until(lambda: meta_leader(cluster[other]) == f"s{other}", 60)
    create(cluster[other], "third")
    until(lambda: "third" in witness.streams)
    assert witness.state()["leader"] == server_hash(f"s{other}").encode()

    # It comes back from its own files, and catches up.
    witness.stop()
    cluster.start_again(leader)
    until(lambda: meta_leader(cluster[leader]) == f"s{other}", 60)
    create(cluster[leader], "fourth")
    before = witness.streams
    witness = Witness(cluster, tmp_path / "gnats")
    witness.start()
    until(lambda: before.keys() | {"fourth"} == witness.streams.keys(), 60)
    assert {name: witness.streams[name] for name in before} == before
    until(lambda: witness.state()["commit"] == witness.state()["pindex"])
    witness.stop()
