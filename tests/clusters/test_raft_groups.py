"""Raft groups of gnats and nats-server together: gnats takes part in the meta group of nats-servers.

gnats does not carry out what that group decides: here it keeps the entries, votes and acknowledges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import Launch, launcher, require
from support.monitor import meta_leader
from support.observers import Observer
from support.servers import REFERENCE, until

from gnats.go.url import URL
from gnats.jetstream.control.raftgroup import RaftGroup
from gnats.nkeys.identity import server_hash
from gnats.options.values.cluster import ClusterOptions
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(180)

META = "_meta_"
EXISTS = 10058


class Witness(Observer):
    """A gnats that is a member of the meta group, but never leads it."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.directory = directory
        super().__init__(server_hash("witness"))
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

    @property
    def streams(self) -> dict[str, str]:
        """The configurations of the assigned streams, by name."""
        return {each.name: each.config_json for each in self.meta.streams()}


def create(cluster: Cluster, number: int, name: str) -> None:
    """Create a stream at a server: another one may be dead, and the leader may not know that yet."""
    config = {"name": name, "subjects": [name], "placement": {"tags": [f"s{number}"]}}

    def made() -> bool:
        with Caller(cluster[number]) as caller:
            caller.connection.sock.settimeout(2)  # without a leader nobody answers
            try:
                found = caller.request(f"$JS.API.STREAM.CREATE.{name}", config).json
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
        config=lambda number: (
            f"server_tags: s{number}\njetstream {{ store_dir: '{tmp_path / str(number)}' }}"
        ),
    )
    cluster.wait_mesh()
    create(cluster, 0, "first")
    witness = Witness(cluster, tmp_path / "gnats")
    witness.start()
    until(lambda: "first" in witness.streams, 60)
    until(lambda: len(witness.state()["peers"]) == 3, 60)
    create(cluster, 1, "second")
    until(lambda: "second" in witness.streams)

    leader = next(number for number in range(2) if meta_leader(cluster[0]) == f"s{number}")
    other = 1 - leader
    cluster.kill(leader)
    until(lambda: meta_leader(cluster[other]) == f"s{other}", 60)
    create(cluster, other, "third")
    until(lambda: "third" in witness.streams)
    assert witness.state()["leader"] == server_hash(f"s{other}").encode()

    # It comes back from its own files, and catches up.
    witness.stop()
    cluster.start_again(leader)
    until(lambda: meta_leader(cluster[leader]) == f"s{other}", 60)
    create(cluster, leader, "fourth")
    before = dict(witness.streams)
    witness = Witness(cluster, tmp_path / "gnats")
    witness.start()
    until(lambda: before.keys() | {"fourth"} == witness.streams.keys(), 60)
    assert before.items() <= witness.streams.items()
    until(lambda: witness.state()["commit"] == witness.state()["pindex"])
    witness.stop()
