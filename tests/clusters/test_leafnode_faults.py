"""Leaf nodes and hubs are killed, and the paths between them cut, paused and slowed, while clients publish.

GNATS_CLUSTER_SECONDS is how long each topology suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.launch import launcher
from support.servers import REFERENCE, TIMEOUT, Kind, until

from .conftest import require_all
from .load import Group, Listener, LoadClient, Publisher
from .members import Client, named
from .proxy import MODES, PASS, PAUSE, REFUSE, SWALLOW, Proxy
from .trees import Dial, Place, Shape, Tree, assignments

SECONDS = float(os.environ.get("GNATS_CLUSTER_SECONDS", "10"))
SEED = int(os.environ.get("GNATS_CLUSTER_SEED", "1"))

pytestmark = [pytest.mark.timeout(240 + 4 * SECONDS), pytest.mark.waits]

QUIET = 60
"""Messages of each publisher after each fault, none of which may be lost."""
HARM = 2.0
"""Seconds that a fault lasts at most."""
BLOCK = "write_deadline: '2s'"
TIMES = "ping_interval: '1s', ping_max: 2"

SHAPES = {
    "hub and leaf": Shape((Place(maps=True), Place(dials=(Dial(0),)))),
    "chain": Shape((Place(maps=True), Place(dials=(Dial(0),)), Place(dials=(Dial(1),)))),
    "two hubs, two leaves": Shape(
        (Place("H", maps=True), Place("H", maps=True), Place(dials=(Dial(0),)), Place(dials=(Dial(1),)))
    ),
}


def grids() -> list[tuple[str, tuple[Kind, ...]]]:
    """Return each shape with the reference in each place, and the smallest with each single kind."""
    found: list[tuple[str, tuple[Kind, ...]]] = []
    for name, shape in SHAPES.items():
        kinds = assignments(len(shape.places))
        found += [(name, each) for each in kinds if len(set(each)) > 1 or name == "hub and leaf"]
    return found


class FaultyTree(Tree):
    """A topology whose leaf nodes dial their hubs through proxies: each hub has one in front."""

    def __init__(self, launch: Callable[..., object], shape: Shape, kinds: tuple[Kind, ...]) -> None:
        self.proxies = {
            hub: Proxy(lambda hub=hub: self.leaf_ports[hub])  # type: ignore[misc]
            for hub in sorted({dial.hub for place in shape.places for dial in place.dials})
        }
        super().__init__(
            launch,  # type: ignore[arg-type]
            shape,
            kinds,
            leaf_port=lambda place, hub: self.proxies[hub].port,
            block=BLOCK,
            config=TIMES,
        )


class Campaign:
    """Harms a topology at random, and checks after each fault that it is whole."""

    def __init__(self, tree: FaultyTree, seed: int) -> None:
        self.tree = tree
        self.rng = random.Random(seed)
        self.steps: list[str] = []
        group = Group()
        numbers = range(len(tree))
        self.publishers = [Publisher(tree[n], n) for n in numbers]
        self.listeners = [Listener(tree[n], n, group, random.Random(self.rng.random())) for n in numbers]

    @property
    def clients(self) -> list[LoadClient]:
        return [*self.publishers, *self.listeners]

    async def run(self, seconds: float) -> None:
        for client in self.clients:
            await client.connect()
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
        what = self.rng.choice(("kill", "flap", *MODES))
        lasts = self.rng.uniform(0.1, HARM)
        if what == "kill":
            number = self.rng.randrange(len(self.tree))
            self.steps.append(f"kill s{number} {lasts:.1f} s")
            self.tree[number].kill()
            await self.suffer(lasts)
            await asyncio.to_thread(self.tree[number].start_again)
            for client in self.clients:
                if client.number == number:
                    await client.connect()
            return
        hub, proxy = self.rng.choice(list(self.tree.proxies.items()))
        self.steps.append(f"{what} before s{hub} {lasts:.1f} s")
        for _ in range(self.rng.randint(2, 5) if what == "flap" else 1):
            proxy.set(REFUSE if what == "flap" else what)
            await self.suffer(self.rng.uniform(0, 0.1) if what == "flap" else lasts)
            proxy.set(PASS)
            await self.suffer(self.rng.uniform(0, 0.5) if what == "flap" else 0)

    async def suffer(self, seconds: float) -> None:
        """Change interest for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.rng.choice(self.listeners).churn()
            await asyncio.sleep(0.01)

    async def check(self) -> None:
        """Wait until the topology is whole; then nothing may be lost for a while."""
        await self.until(self.whole)
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
                raise TimeoutError(f"{condition} does not come true: {self.last_seen}")
            await asyncio.sleep(0.02)

    def whole(self) -> bool:
        """Whether all links are there, and each side of a leaf node knows what the clients beyond it want.

        Interest stays known at both sides of a path that looks whole, so this is asked of places twice: of
        one that has not noticed yet that its connection has gone, the peer has none.
        """
        self.last_seen: object = "the links are not all there"
        if not all(self.tree.is_linked(number) for number in range(len(self.tree))):
            return False
        found = {
            (number, leaf["name"]): sorted(
                subject for subject in leaf.get("subscriptions_list") or () if is_load(subject)
            )
            for number in range(len(self.tree))
            for leaf in self.tree.leafs(number)
        }
        wanted = {
            (number, name): sorted(
                {
                    subject
                    for place in self.tree.shape.beyond(number, int(name[1:]))
                    for subject, _ in self.listeners[place].interest
                }
            )
            for number, name in found
        }
        self.last_seen = found, wanted
        return {key: sorted(set(each)) for key, each in found.items()} == wanted


def is_load(subject: str) -> bool:
    """Whether it is a subject of these clients, not one of the server or of an account's services."""
    return subject.startswith(("load.", "churn."))


@pytest.fixture(params=grids(), ids=lambda grid: f"{grid[0]}: {named(grid[1])}")
def grid(request: pytest.FixtureRequest) -> tuple[str, tuple[Kind, ...]]:
    name, kinds = request.param
    require_all(kinds)
    return name, kinds


async def test_leaf_nodes_recover_from_faults(grid: tuple[str, tuple[Kind, ...]], tmp_path: Path) -> None:
    campaign: Campaign | None = None
    with launcher(REFERENCE, tmp_path) as launch:
        async with AsyncExitStack() as stack:
            try:
                tree = FaultyTree(launch, SHAPES[grid[0]], grid[1])
                for proxy in tree.proxies.values():
                    await proxy.start()
                    stack.push_async_callback(proxy.close)
                campaign = Campaign(tree, SEED)
                await campaign.run(SECONDS)
            except BaseException as error:
                error.add_note(f"GNATS_CLUSTER_SEED={SEED}; faults: {campaign and campaign.steps}")
                raise


@pytest.mark.parametrize("how", [REFUSE, PAUSE, SWALLOW])
@pytest.mark.parametrize("kinds", assignments(2), ids=named)
async def test_the_hub_cannot_be_reached_at_the_start(
    kinds: tuple[Kind, ...], how: str, tmp_path: Path
) -> None:
    """The leaf node's clients are served meanwhile; the connection comes when the hub can be reached."""
    require_all(kinds)
    with launcher(REFERENCE, tmp_path) as launch:
        tree = FaultyTree(launch, SHAPES["hub and leaf"], kinds)
        (proxy,) = tree.proxies.values()
        proxy.set(how)
        await proxy.start()

        def use() -> None:
            with Client(tree[1]) as one, Client(tree[1]) as other:
                one.subscribe("local")
                one.reachable_from(other)
                other.publish("local", b"x")
                assert one.payloads(other) == [b"x"]
                assert one.request("nobody").status == "503"
                assert tree.leafs(1) == []

        def use_all() -> None:
            until(lambda: tree.is_linked(0) and tree.is_linked(1))
            for here, there in (0, 1), (1, 0):
                with Client(tree[here]) as publisher, Client(tree[there]) as subscriber:
                    subscriber.subscribe("far")
                    subscriber.reachable_from(publisher)
                    publisher.publish("far", b"x")
                    assert subscriber.payloads(publisher) == [b"x"]

        try:
            await asyncio.to_thread(use)
            proxy.set(PASS)
            await asyncio.to_thread(use_all)
        finally:
            await proxy.close()
