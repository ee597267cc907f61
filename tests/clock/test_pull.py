"""Timers of pull requests: heartbeats and expiry, with and without messages."""

from __future__ import annotations

from support.clock import HeldClock

from gnats.go.text import SECOND

from .client import Client

MS = 10**6


async def queue(js: Client, name: str = "C", **config: object) -> None:
    await js.stream("Q")
    await js.consumer("Q", name, **config)


async def test_a_request_ends_when_it_expires_and_not_before(js: Client, clock: HeldClock) -> None:
    await queue(js)
    answers = await js.pull("Q", "C", batch=1, expires=5 * SECOND)
    await clock.advance(4.999)
    assert await answers.nothing()
    await clock.advance(0.001)
    assert (await answers.next()).status == "408 Request Timeout"


async def test_a_request_gets_a_message_until_it_expires(js: Client, clock: HeldClock) -> None:
    await queue(js)
    answers = await js.pull("Q", "C", batch=2, expires=3600 * SECOND)
    await clock.advance(3599)
    await js.store("Q.a")
    assert (await answers.next()).payload == b"x"
    await clock.advance(1)
    ended = await answers.next()
    assert ended.status == "408 Request Timeout"
    assert ended.headers["Nats-Pending-Messages"] == "1"
    await js.store("Q.b")
    assert await answers.nothing()


async def test_heartbeats_come_at_their_interval(js: Client, clock: HeldClock) -> None:
    await queue(js)
    answers = await js.pull("Q", "C", batch=1, expires=10 * SECOND, idle_heartbeat=SECOND)
    for _ in range(3):
        await clock.advance(0.999)
        assert await answers.nothing()
        await clock.advance(0.001)
        assert (await answers.next()).status == "100 Idle Heartbeat"
    await clock.advance(6.999)
    assert [(await answers.next()).status for _ in range(6)] == ["100 Idle Heartbeat"] * 6
    assert await answers.nothing()
    await clock.advance(0.001)
    assert (await answers.next()).status == "408 Request Timeout"
    await clock.advance(60)
    assert await answers.nothing()


async def test_a_suspended_machine_misses_heartbeats_and_no_end(js: Client, clock: HeldClock) -> None:
    await queue(js)
    answers = await js.pull("Q", "C", batch=1, expires=10 * SECOND, idle_heartbeat=SECOND)
    await clock.jump(3600)
    statuses = [(await answers.next()).status]
    while statuses[-1] != "408 Request Timeout":
        statuses.append((await answers.next()).status)
    assert statuses.count("100 Idle Heartbeat") <= 1
    assert await answers.nothing()
