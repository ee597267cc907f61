"""Networks that lose packets, in both directions or in one: routes are dialled in vain, and go stale."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from support.clusters import Cluster
from support.networks import Network, network
from support.servers import Kind, Server

from .campaign import HARM, SEED, seconds
from .conftest import require_all
from .members import ACCOUNTS, named, rows
from .test_faults import BLOCK, ClusterCampaign

SECONDS = seconds(12)
SIZE = 3
ROUTE_PORT = 6222
"""Of every host: none of those that the system gives to servers that ask for any."""

pytestmark = [pytest.mark.timeout(240 + 4 * SECONDS), pytest.mark.waits]


class SpreadCluster(Cluster):
    """A cluster whose members are each on a host of its own."""

    def __init__(self, directory: Path, kinds: tuple[Kind, ...], hosts: Network) -> None:
        self.hosts = hosts
        self.servers = []
        try:
            for number, kind in enumerate(kinds):
                self.servers.append(self._start(directory / f"s{number}", number, kind))
        except BaseException:
            self.kill_all()
            raise

    def _start(self, directory: Path, number: int, kind: Kind) -> Server:
        address = self.hosts.address(number)
        others = [other for other in range(len(self.hosts)) if other != number]
        routes = [f"nats-route://{self.hosts.address(other)}:{ROUTE_PORT}" for other in others]
        config = f"""
            server_name: s{number}
            cluster {{
                listen: "{address}:{ROUTE_PORT}", name: C, routes: [{", ".join(routes)}]
                compression: off, {BLOCK}
            }}
            {ACCOUNTS}
        """
        args = "-D", "-m", "-1", "-a", address
        server = Server(kind, directory, *args, config=config, wrapper=self.hosts.wrapper(number))
        server.monitor_host = address
        return server

    def kill_all(self) -> None:
        for server in self.servers:
            server.kill()


class PartitionCampaign(ClusterCampaign):
    cluster: SpreadCluster

    async def harm(self) -> None:
        number = self.rng.randrange(SIZE)
        what = self.rng.choice(("kill", "alone", "deaf", "mute", "apart", "deaf to one", "flapping"))
        lasts = self.rng.uniform(0.1, HARM) * (2.5 if self.rng.random() < 0.4 else 1)
        if what == "kill":
            await self.kill(number, lasts)
            return
        self.steps.append(f"{what} s{number} {lasts:.1f} s")
        others = [other for other in range(SIZE) if other != number]
        one = self.rng.choice(others)
        lost = {
            "alone": [pair for other in others for pair in ((number, other), (other, number))],
            "deaf": [(other, number) for other in others],
            "mute": [(number, other) for other in others],
            "apart": [(number, one), (one, number)],
            "deaf to one": [(one, number)],
            "flapping": [(number, one), (one, number)],
        }[what]
        for _ in range(5 if what == "flapping" else 1):
            for pair in lost:
                self.cluster.hosts.lose(*pair)
            await self.suffer(lasts / 5 if what == "flapping" else lasts)
            for pair in lost:
                self.cluster.hosts.pass_all(*pair)
            await self.suffer(lasts / 5 if what == "flapping" else 0)


@pytest.mark.parametrize("kinds", rows(SIZE, 3), ids=named)
async def test_a_cluster_recovers_from_partitions(kinds: tuple[Kind, ...], tmp_path: Path) -> None:
    require_all(kinds)
    with network(SIZE) as hosts:
        cluster = SpreadCluster(tmp_path, kinds, hosts)
        try:
            await PartitionCampaign(cluster, SEED).run(SECONDS)
            for server in cluster.servers:
                await asyncio.to_thread(server.stop)
        finally:
            cluster.kill_all()


@pytest.mark.parametrize("kinds", rows(2, 2), ids=named)
def test_a_host_that_does_not_answer_is_dialled_until_it_does(
    kinds: tuple[Kind, ...], tmp_path: Path
) -> None:
    """Connecting takes its time-out; the server serves its clients meanwhile, and stops at once."""
    require_all(kinds)
    with network(2) as hosts:
        for pair in itertools.permutations(range(2)):
            hosts.lose(*pair)
        cluster = SpreadCluster(tmp_path, kinds, hosts)
        try:
            for server in cluster.servers:
                server.wait_log(r"Error trying to connect to route .*: dial tcp .*: i/o timeout")
            for pair in itertools.permutations(range(2)):
                hosts.pass_all(*pair)
            cluster.wait_mesh()
            for pair in itertools.permutations(range(2)):
                hosts.lose(*pair)
            for server in cluster.servers:
                server.stop()
        finally:
            cluster.kill_all()
