"""Members are killed, and routes are cut, paused, slowed and left half open, while clients publish.

GNATS_CLUSTER_SECONDS is how long each cluster suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from support.clusters import Cluster, line
from support.launch import launcher
from support.monitor import monitor
from support.servers import REFERENCE, Kind

from .campaign import HARM, SEED, Campaign, seconds
from .conftest import require_all
from .members import ACCOUNTS, named, rows
from .proxy import MODES, Proxy

SECONDS = seconds(15)

pytestmark = [pytest.mark.timeout(240 + 4 * SECONDS), pytest.mark.waits]

SIZE = 3
BLOCK = "ping_interval: '1s', ping_max: 2, write_deadline: '2s'"


class FaultyCluster(Cluster):
    """A cluster whose routes all go through proxies: each member has one in front, which it advertises."""

    def __init__(
        self,
        directory: Path,
        kinds: tuple[Kind, ...],
        launch: Callable[..., object],
        config: str | Callable[[int], str] = ACCOUNTS,
        routes: Callable[[int, int], Sequence[int]] = line,
    ) -> None:
        self.proxies = [Proxy(lambda number=number: self.route_ports[number]) for number in range(len(kinds))]  # type: ignore[misc]
        super().__init__(
            launch,  # type: ignore[arg-type]
            kinds,
            config=config,
            routes=routes,
            block=lambda n: f"compression: off, advertise: '127.0.0.1:{self.proxies[n].port}', {BLOCK}",
            args=("-D",),
        )

    def route_url(self, number: int) -> str:
        return f"nats-route://127.0.0.1:{self.proxies[number].port}"


class ClusterCampaign(Campaign):
    def __init__(self, cluster: FaultyCluster, seed: int) -> None:
        self.cluster = cluster
        super().__init__(cluster.servers, seed)

    async def harm(self) -> None:
        number = self.rng.randrange(len(self.cluster))
        proxy = self.cluster.proxies[number]
        what = self.rng.choice(("kill", "flap", *MODES))
        lasts = self.rng.uniform(0.1, HARM) * (2.5 if self.rng.random() < 0.25 else 1)
        if what == "kill":
            await self.kill(number, lasts)
        elif what == "flap":
            await self.flap(proxy, f"s{number}")
        else:
            await self.spoil(proxy, what, f"s{number}", lasts)

    async def settle(self) -> None:
        await super().settle()
        await asyncio.to_thread(self.cluster.wait_mesh)

    def whole(self) -> bool:
        """Whether the routes are all there, and the interest of each member is known to each other one."""
        found = [self.known(number) for number in range(len(self.cluster))]
        wanted = {f"s{listener.number}": listener.interest for listener in self.listeners}
        self.last_seen = found, wanted
        return all(
            each == {name: interest for name, interest in wanted.items() if name != f"s{number}"}
            for number, each in enumerate(found)
        )

    def known(self, number: int) -> dict[str, set[tuple[str, str]]]:
        """Return the interest in account A that a member knows of, by the remote's name."""
        found: dict[str, set[tuple[str, str]]] = {}
        for route in monitor(self.cluster[number], "/routez?subs=detail").get("routes") or ():
            interest = found.setdefault(route["remote_name"], set())
            for sub in route.get("subscriptions_list_detail") or ():
                if sub.get("account", "A") == "A" and sub["sid"].split()[1] == "A":
                    assert (sub["subject"], sub.get("qgroup", "")) not in interest, sub
                    interest.add((sub["subject"], sub.get("qgroup", "")))
        return found


@pytest.fixture(params=rows(SIZE, 3), ids=named)
def kinds(request: pytest.FixtureRequest) -> tuple[Kind, ...]:
    kinds: tuple[Kind, ...] = request.param
    require_all(kinds)
    return kinds


async def test_a_cluster_recovers_from_faults(kinds: tuple[Kind, ...], tmp_path: Path) -> None:
    with launcher(REFERENCE, tmp_path) as launch:
        cluster: FaultyCluster | None = None
        try:
            cluster = FaultyCluster(tmp_path, kinds, launch)
            for proxy in cluster.proxies:
                await proxy.start()
            await ClusterCampaign(cluster, SEED).run(SECONDS)
        finally:
            for proxy in cluster.proxies if cluster else ():
                await proxy.close()
