"""Counts of subscribers that other servers add to; the time is held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from support.clock import HeldClock

from gnats.accounts.account import Account
from gnats.accounts.internal_client import Callback, Message
from gnats.events.replies import Replies
from gnats.log.logger import Logger
from gnats.monitor import services
from gnats.runtime.long_work import LongWork
from gnats.server.subscriber_counts import MOST_WAITING, WAIT, SubscriberCounts

CLIENT, ROUTE = 1, 2


class World:
    """A server that has 3 subscribers of anything, and what it publishes."""

    def __init__(self) -> None:
        self.callbacks: dict[bytes, Callback] = {}
        self.published: list[tuple[bytes, bytes, bytes]] = []
        self.lines: list[bytes] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.account = Account("A")
        log = Logger(self.lines.append, logtime=False, debug=False, trace=False)
        long_work = LongWork({CLIENT, ROUTE}, self.spawn, log)
        parts: list[Any] = [self, Replies(self, "S"), None, {"A": self.account}, {CLIENT: None}]  # type: ignore[arg-type]
        SubscriberCounts(*parts, long_work, log, self.spawn)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    def subscribe(self, subject: bytes, callback: Callback) -> None:
        self.callbacks[subject] = callback

    def publish(self, subject: bytes, payload: bytes, *, reply: bytes) -> None:
        self.published.append((subject, payload, reply))

    def ask(self, payload: bytes = b"foo", producer: int = CLIENT, account: bytes = b'"A"') -> None:
        subject = b"$SYS.DEBUG.SUBSCRIBERS"
        self.callbacks[subject](Message(subject, b"answer", b"", payload, producer, b"", account))

    def reply(self, payload: bytes) -> None:
        """Answer the latest request as another server."""
        inbox = next(reply for subject, _, reply in reversed(self.published) if b"NSUBS" in subject)
        callback = next(each for subject, each in self.callbacks.items() if b"_INBOX" in subject)
        callback(Message(inbox, b"", b"", payload, ROUTE))

    @property
    def answers(self) -> list[bytes]:
        return [payload for subject, payload, _ in self.published if subject == b"answer"]


@pytest.fixture
async def world(clock: HeldClock, monkeypatch: pytest.MonkeyPatch) -> World:
    def count(*_: object) -> Iterator[None]:
        yield
        return 3  # type: ignore[return-value]

    monkeypatch.setattr(services, "count_subscriptions", count)
    return World()


async def test_a_lone_server_answers_at_once(world: World) -> None:
    world.ask()
    assert world.published == [(b"answer", b"3", b"")]


async def test_the_others_answers_are_added(world: World, clock: HeldClock) -> None:
    world.account.clients_elsewhere = {"X": 1, "Y": 5}
    world.ask(b"foo q")
    await clock.advance(0)
    ((subject, payload, _),) = world.published
    assert subject == b"$SYS.REQ.ACCOUNT.NSUBS"
    assert json.loads(payload) == {"acc": "A", "subject": "foo", "queue": "cQ=="}
    world.reply(b"4")
    await clock.advance(0)
    assert world.answers == []
    world.reply(b"5")
    await clock.advance(0)
    assert world.answers == [b"12"]


@pytest.mark.parametrize("odd", [b"", b"-1", b"1" * 5000, b"{}"])
async def test_the_wait_ends(world: World, clock: HeldClock, odd: bytes) -> None:
    world.account.clients_elsewhere = {"X": 1, "Y": 5}
    world.ask()
    await clock.advance(0)
    world.reply(odd)
    await clock.advance(WAIT - 0.01)
    assert world.answers == []
    await clock.advance(0.02)
    assert world.answers == [b"3"]


async def test_only_own_clients_of_known_accounts_are_answered(world: World) -> None:
    world.ask(producer=ROUTE)
    world.ask(account=b'"B"')
    assert world.published == []


async def test_what_may_wait_is_bounded(world: World, clock: HeldClock) -> None:
    world.account.clients_elsewhere = {"X": 1}
    for _ in range(MOST_WAITING + 5):
        world.ask()
        await asyncio.sleep(0)
    assert [b"Dropped requests for numbers of subscribers" in line for line in world.lines] == [True]
    await clock.advance(WAIT + 0.01)
    assert world.answers == [b"3"] * MOST_WAITING
    world.ask()
    await clock.advance(0)
    world.reply(b"1")
    await clock.advance(0)
    assert world.answers[-1] == b"4"
