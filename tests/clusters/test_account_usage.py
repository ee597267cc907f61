"""What an account uses in a cluster of gnats and nats-servers: each server knows what the others store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.caller import Caller
from support.clusters import Cluster
from support.launch import Launch, launcher, require
from support.monitor import meta_leader
from support.servers import REFERENCE, Server, until

from gnats import Options
from gnats.jetstream.control.cluster_usage import USAGE_TICK
from gnats.nkeys.identity import server_hash
from gnats.testing import ServerThread

pytestmark = pytest.mark.timeout(180)

GNATS = server_hash("gnats")


def config(directory: Path, number: int) -> str:
    return f"""
      jetstream {{ store_dir: '{directory / str(number)}' }}
      server_tags: [at:{number}]
      accounts {{
        $SYS {{ users: [ {{ user: s, password: p }} ] }}
        A {{ jetstream: enabled, users: [ {{ user: a, password: p }} ] }}
      }}
    """


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    require(REFERENCE)
    with launcher(REFERENCE, tmp_path) as launch:
        yield launch


@pytest.fixture
def cluster(launch: Launch, tmp_path: Path) -> Cluster:
    """Two nats-servers with a meta leader."""
    cluster = Cluster(launch, [REFERENCE] * 2, config=lambda number: config(tmp_path, number))
    cluster.wait_mesh()
    until(lambda: leading(cluster) is not None, 60)
    return cluster


@pytest.fixture
def gnats(cluster: Cluster, tmp_path: Path) -> Iterator[ServerThread]:
    """A gnats in their cluster."""
    routes = ", ".join(f"'{cluster.route_url(number)}'" for number in range(2))
    file = tmp_path / "gnats.conf"
    block = f"cluster {{ name: {cluster.name}, listen: '127.0.0.1:-1', routes: [{routes}] }}"
    file.write_text(f"server_name: gnats, listen: '127.0.0.1:-1'\n{block}\n{config(tmp_path, 2)}")
    with ServerThread(Options.from_file(str(file))) as thread:
        yield thread


def leading(cluster: Cluster) -> Server | None:
    """Return the nats-server that leads the meta group."""
    leader = meta_leader(cluster[0])
    return cluster[int(leader[1:])] if leader in ("s0", "s1") else None


def api(cluster: Cluster, what: str, body: object = None) -> dict[str, Any]:
    """Ask until the answer is no error."""

    def answer() -> dict[str, Any] | None:
        with Caller(cluster[0], "a", "p") as caller:
            caller.connection.sock.settimeout(5)
            try:
                found: dict[str, Any] = caller.request(f"$JS.API.{what}", body).json
            except TimeoutError:
                return None
        return None if "error" in found else found

    return until(answer, 60)


def fill(cluster: Cluster, name: str, member: int, messages: int) -> int:
    """Store messages in a new stream at a member; return the bytes that it has."""
    placement = {"tags": [f"at:{member}"]}
    api(cluster, f"STREAM.CREATE.{name}", {"name": name, "subjects": [name], "placement": placement})
    with Caller(cluster[0], "a", "p", no_responders=True) as caller:
        for _ in range(messages):
            until(lambda: b'"seq"' in caller.request(name, b"x" * 100).payload)
    state = api(cluster, f"STREAM.INFO.{name}")["state"]
    assert state["messages"] == messages
    return int(state["bytes"])


def test_each_server_knows_what_the_others_store(cluster: Cluster, gnats: ServerThread) -> None:
    there = fill(cluster, "there", 0, 5)

    def elsewhere() -> tuple[int, int]:
        return gnats.call(lambda server: server.jetstream.accounts["A"].usage_elsewhere(""))  # type: ignore[union-attr]

    until(lambda: elsewhere() == (0, there))
    here = fill(cluster, "here", 2, 7)
    until(lambda: api(cluster, "INFO")["storage"] == there + here)
    assert elsewhere() == (0, there)
    with Caller(cluster[1], "s", "p") as watcher:
        watcher.subscribe(f"$JSC.ARU.*.{GNATS}")
        time.sleep(3 * USAGE_TICK)  # for what does not come there is no event
        watcher.fence()
        assert len(watcher.kept()) <= 1  # about the requests above
    api(cluster, "STREAM.PURGE.here")
    until(lambda: api(cluster, "INFO")["storage"] == there)
