"""When a server publishes what accounts use; the time is held."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.clock import HeldClock

from gnats.accounts.internal_client import Callback, Message
from gnats.jetstream.cluster.account_usage import AccountUsage, UsageElsewhere, decode_usage, encode_usage
from gnats.jetstream.control.cluster_usage import LOOKS_AT_ALL, USAGE_TICK, ClusterUsage
from gnats.log.logger import SilentLogger

OWN = "ownownow"


class World:
    """A server with accounts A and B, and what it publishes."""

    def __init__(self) -> None:
        self.callbacks: dict[bytes, Callback] = {}
        self.published: list[tuple[str, AccountUsage]] = []
        self.usage = {"A": AccountUsage({"": (0, 1)}), "B": AccountUsage({})}
        self.totals = 0
        self.elsewhere = UsageElsewhere()
        self.client = SimpleNamespace(
            subscribe=self._subscribe, unsubscribe=self.callbacks.pop, publish=self._publish
        )
        self.updates = ClusterUsage(
            self.client,  # type: ignore[arg-type]
            OWN,
            lambda: [
                SimpleNamespace(name=name, usage_here=lambda name=name: self.usage[name])
                for name in self.usage
            ],
            lambda: (self.totals,),
            self.elsewhere,
            SilentLogger(),
        )

    def _subscribe(self, subject: bytes, callback: Callback) -> bytes:
        self.callbacks[subject] = callback
        return subject

    def _publish(self, subject: bytes, payload: bytes, *, reply: bytes) -> None:
        self.published.append((subject.decode(), decode_usage(payload)))

    def use(self, account: str, usage: AccountUsage) -> None:
        self.usage[account] = usage
        self.totals += 1

    def hear(self, payload: bytes, *, from_server: bool = True) -> None:
        self.callbacks[b"$JSC.ARU.>"](
            Message(b"$JSC.ARU.A.xxxxxxxx", b"", b"", payload, 7, from_server=from_server)
        )


@pytest.fixture
async def world(clock: HeldClock) -> World:
    return World()


async def test_changes_are_published_and_nothing_else(world: World, clock: HeldClock) -> None:
    await clock.advance(USAGE_TICK)
    assert world.published == [(f"$JSC.ARU.A.{OWN}", world.usage["A"])]
    await clock.advance(10 * LOOKS_AT_ALL * USAGE_TICK)
    assert len(world.published) == 1
    world.use("B", AccountUsage({"R1": (5, 6)}, 1, 0))
    for number in range(20):
        world.use("A", AccountUsage({"": (0, number)}))
    await clock.advance(USAGE_TICK)
    assert world.published[1:] == [(f"$JSC.ARU.{name}.{OWN}", world.usage[name]) for name in "AB"]


async def test_a_change_that_the_totals_hide_is_published_later(world: World, clock: HeldClock) -> None:
    await clock.advance(USAGE_TICK)
    world.usage["A"] = AccountUsage({"": (1, 1)})
    await clock.advance(LOOKS_AT_ALL * USAGE_TICK)
    assert len(world.published) == 2


async def test_everything_is_published_again_for_another_server(world: World, clock: HeldClock) -> None:
    await clock.advance(USAGE_TICK)
    world.updates.publish_again("xxxxxxxx")
    await clock.advance(USAGE_TICK)
    assert world.published == [(f"$JSC.ARU.A.{OWN}", world.usage["A"])] * 2


async def test_an_account_that_no_subject_can_name(world: World, clock: HeldClock) -> None:
    world.use("a b", AccountUsage({"": (1, 1)}))
    await clock.advance(USAGE_TICK)
    assert [subject for subject, _ in world.published] == [f"$JSC.ARU.A.{OWN}"]


async def test_it_ends(world: World, clock: HeldClock) -> None:
    world.updates.close()
    await clock.advance(10 * USAGE_TICK)
    assert (world.published, world.callbacks) == ([], {})


async def test_only_servers_are_believed(world: World) -> None:
    payload = encode_usage(AccountUsage({"": (1, 2)}))
    world.hear(payload, from_server=False)
    assert world.elsewhere.used("A", "") == (0, 0)
    world.hear(payload)
    world.hear(b"short")
    assert world.elsewhere.used("A", "") == (1, 2)
