"""Members are killed, and routes are cut, paused, slowed and left half open, while clients publish.

GNATS_CLUSTER_SECONDS is how long each cluster suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.clusters import Cluster, line
from support.launch import launcher
from support.monitor import monitor
from support.servers import REFERENCE, TIMEOUT, Kind

from .conftest import require_all
from .load import Group, Listener, LoadClient, Publisher
from .members import ACCOUNTS, named, rows
from .proxy import MODES, PASS, REFUSE, Proxy

SECONDS = float(os.environ.get("GNATS_CLUSTER_SECONDS", "15"))
SEED = int(os.environ.get("GNATS_CLUSTER_SEED", "1"))

pytestmark = [pytest.mark.timeout(240 + 4 * SECONDS), pytest.mark.waits]

SIZE = 3
QUIET = 60
"""Messages of each publisher after each fault, none of which may be lost."""
HARM = 2.0
"""Seconds that a fault lasts at most, but for connections that must go stale."""
BLOCK = "ping_interval: '1s', ping_max: 2, write_deadline: '2s'"


class FaultyCluster(Cluster):
    """A cluster whose routes all go through proxies: each member has one in front, which it advertises."""

    def __init__(self, directory: Path, kinds: tuple[Kind, ...], launch: Callable[..., object]) -> None:
        self.proxies = [Proxy(lambda number=number: self.route_ports[number]) for number in range(len(kinds))]  # type: ignore[misc]
        super().__init__(
            launch,  # type: ignore[arg-type]
            kinds,
            config=ACCOUNTS,
            routes=line,
            block=lambda n: f"compression: off, advertise: '127.0.0.1:{self.proxies[n].port}', {BLOCK}",
            args=("-D",),
        )

    def route_url(self, number: int) -> str:
        return f"nats-route://127.0.0.1:{self.proxies[number].port}"


class Campaign:
    """Harms a cluster at random, and checks after each fault that it is whole."""

    def __init__(self, cluster: FaultyCluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.steps: list[str] = []
        group = Group()
        numbers = range(len(cluster))
        self.publishers = [Publisher(cluster[n], n) for n in numbers]
        self.listeners = [Listener(cluster[n], n, group, random.Random(self.rng.random())) for n in numbers]

    @property
    def clients(self) -> list[LoadClient]:
        return [*self.publishers, *self.listeners]

    async def run(self, seconds: float) -> None:
        for client in self.listeners:
            await client.connect()
        for publisher in self.publishers:
            await publisher.connect()
        end = time.monotonic() + seconds
        try:
            await self.check()
            while time.monotonic() < end:
                await self.harm()
                await self.check()
        finally:
            for client in self.clients:
                await client.disconnect()

    async def harm(self) -> None:
        number = self.rng.randrange(len(self.cluster))
        proxy = self.cluster.proxies[number]
        what = self.rng.choice(("kill", "flap", *MODES))
        lasts = self.rng.uniform(0.1, HARM) * (2.5 if self.rng.random() < 0.25 else 1)
        self.steps.append(f"{what} s{number} {lasts:.1f} s")
        if what == "kill":
            self.cluster.kill(number)
            await self.suffer(lasts)
            await asyncio.to_thread(self.cluster.start_again, number)
            for client in self.clients:
                if client.number == number:
                    await client.connect()
        elif what == "flap":
            for _ in range(self.rng.randint(2, 6)):
                proxy.set(REFUSE)
                await self.suffer(self.rng.uniform(0, 0.1))
                proxy.set(PASS)
                await self.suffer(self.rng.uniform(0, 0.6))
        else:
            proxy.set(what)
            await self.suffer(lasts)
            proxy.set(PASS)

    async def suffer(self, seconds: float) -> None:
        """Change interest for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.rng.choice(self.listeners).churn()
            await asyncio.sleep(0.01)

    async def check(self) -> None:
        """Wait until the cluster is whole; then nothing may be lost for a while."""
        await self.until(self.whole)
        await asyncio.to_thread(self.cluster.wait_mesh)
        begun = [publisher.sent + 1 for publisher in self.publishers]
        await self.until(lambda: self.published([number + QUIET for number in begun]))
        ended = [publisher.sent for publisher in self.publishers]
        await self.until(lambda: self.heard(ended))
        for listener in self.listeners:
            for n, (first, last) in enumerate(zip(begun, ended, strict=True)):
                lost = listener.lost(n, first, last)
                assert not lost, f"listener {listener.number} has lost {lost} of publisher {n}"

    def published(self, numbers: list[int]) -> bool:
        """Whether each publisher has got so far."""
        return all(each.sent >= number for each, number in zip(self.publishers, numbers, strict=True))

    def heard(self, numbers: list[int]) -> bool:
        """Whether each listener has got as far with each publisher."""
        return all(
            each.last.get(n, 0) >= number for each in self.listeners for n, number in enumerate(numbers)
        )

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition. Raises TimeoutError, and Wrong when a listener has found so."""
        end = time.monotonic() + TIMEOUT
        while not (await asyncio.to_thread(condition)):
            for client in self.clients:
                client.check()
            if time.monotonic() > end:
                raise TimeoutError(f"{condition.__name__} does not come true")
            await asyncio.sleep(0.02)

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
        campaign: Campaign | None = None
        try:
            cluster = FaultyCluster(tmp_path, kinds, launch)
            for proxy in cluster.proxies:
                await proxy.start()
            campaign = Campaign(cluster, SEED)
            await campaign.run(SECONDS)
        except BaseException as error:
            error.add_note(f"GNATS_CLUSTER_SEED={SEED}; faults: {campaign and campaign.steps}")
            raise
        finally:
            for proxy in cluster.proxies if cluster else ():
                await proxy.close()
