"""Leaf nodes and hubs are killed, and the paths between them cut, paused and slowed, while clients publish.

GNATS_CLUSTER_SECONDS is how long each topology suffers, GNATS_CLUSTER_SEED what is drawn from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from support.launch import launcher
from support.servers import REFERENCE, Kind, until

from .campaign import HARM, SEED, Campaign, seconds
from .conftest import require_all
from .members import Client, named
from .proxy import MODES, PASS, PAUSE, REFUSE, SWALLOW, Proxy
from .trees import Dial, Place, Shape, Tree, assignments

SECONDS = seconds(10)

pytestmark = [pytest.mark.timeout(240 + 4 * SECONDS), pytest.mark.waits]

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


class TreeCampaign(Campaign):
    def __init__(self, tree: FaultyTree, seed: int) -> None:
        self.tree = tree
        super().__init__(tree.servers, seed)

    async def harm(self) -> None:
        what = self.rng.choice(("kill", "flap", *MODES))
        lasts = self.rng.uniform(0.1, HARM)
        if what == "kill":
            await self.kill(self.rng.randrange(len(self.tree)), lasts)
            return
        hub, proxy = self.rng.choice(list(self.tree.proxies.items()))
        if what == "flap":
            await self.flap(proxy, f"before s{hub}")
        else:
            await self.spoil(proxy, what, f"before s{hub}", lasts)

    def whole(self) -> bool:
        """Whether all links are there, and each side of a leaf node knows what the clients beyond it want.

        Interest stays known at both sides of a path that looks whole, so this is asked of places twice: of
        one that has not noticed yet that its connection has gone, the peer has none.
        """
        self.last_seen = "the links are not all there"
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
    with launcher(REFERENCE, tmp_path) as launch:
        async with AsyncExitStack() as stack:
            tree = FaultyTree(launch, SHAPES[grid[0]], grid[1])
            for proxy in tree.proxies.values():
                await proxy.start()
                stack.push_async_callback(proxy.close)
            await TreeCampaign(tree, SEED).run(SECONDS)


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
