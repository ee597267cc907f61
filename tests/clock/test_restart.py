"""A server that is stopped and started again: deadlines while it is down, and later ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.clock import HeldClock

from gnats.go.text import SECOND, rfc3339
from gnats.options.values.jetstream import JetStreamOptions

from .client import Client
from .conftest import Connect, Start
from .test_streams import LATE, messages, until_due

Up = Callable[[], Awaitable[Client]]
Down = Callable[[float], Awaitable[Client]]


@pytest.fixture
def up(start: Start, connect: Connect, tmp_path: Path) -> Up:
    """Start a server with the test's store; return a client of it."""

    async def up() -> Client:
        options = JetStreamOptions(enabled=True, store_dir=str(tmp_path))
        return await connect(await start(jetstream=options, ping_interval=10**6))

    return up


@pytest.fixture
async def js(up: Up) -> Client:
    return await up()


@pytest.fixture
def down(up: Up, clock: HeldClock) -> Down:
    """Stop the server, let `seconds` pass, and start it again; return a client of it."""

    async def down(seconds: float) -> Client:
        await clock.settle()
        await clock.servers[-1].shutdown()
        await clock.jump(seconds)
        return await up()

    return down


async def test_the_age_of_messages(js: Client, down: Down, clock: HeldClock) -> None:
    await js.stream("A", max_age=3600 * SECOND, storage="file")
    for _ in range(2):
        await js.store("A.a")
        await clock.advance(1800)
    await js.store("A.a")
    js = await down(1700)
    assert await messages(js, "A") == 2
    await clock.advance(99.999)
    assert await messages(js, "A") == 2
    await clock.advance(0.02)
    assert await messages(js, "A") == 1
    await clock.advance(1799.9)
    assert await messages(js, "A") == 1
    await clock.advance(0.12)
    assert await messages(js, "A") == 0


async def test_ttls_and_markers(js: Client, down: Down, clock: HeldClock) -> None:
    await js.stream(
        "M",
        allow_msg_ttl=True,
        allow_rollup_hdrs=True,
        subject_delete_marker_ttl=30 * SECOND,
        storage="file",
    )
    await js.store("M.short", "Nats-TTL: 60s")
    await js.store("M.long", "Nats-TTL: 1h")
    await js.store("M.never", "Nats-TTL: never")
    js = await down(100)
    came = await js.subscribe("to.M")
    await clock.advance(LATE)
    await js.consumer("M", "C", deliver_subject="to.M", ack_policy="none")
    assert [(await came.next()).subject for _ in range(3)] == ["M.long", "M.never", "M.short"]
    await clock.advance(3600 - 100 - LATE - 0.1)
    assert await came.nothing()
    await clock.advance(0.1 + LATE)
    marker = await came.next()
    assert (marker.subject, marker.headers["Nats-Marker-Reason"]) == ("M.long", "MaxAge")
    js = await down(60)
    await clock.advance(LATE)
    assert await messages(js, "M") == 1


async def test_schedules(js: Client, down: Down, clock: HeldClock) -> None:
    await js.stream("S", allow_msg_schedules=True, allow_msg_ttl=True, storage="file")
    begun = clock.now
    for name, seconds in (("missed", 60), ("later", 600)):
        at = rfc3339(begun + seconds * SECOND)
        await js.store(f"S.{name}", f"Nats-Schedule: @at {at}", f"Nats-Schedule-Target: S.to.{name}")
    await js.store("S.repeated", "Nats-Schedule: @every 50s", "Nats-Schedule-Target: S.to.repeated")
    js = await down(120)
    await js.consumer("S", "C", filter_subject="S.to.>", ack_policy="none")
    answers = await js.pull("S", "C", batch=100, expires=10**9 * SECOND)
    await clock.advance(0.05)
    assert {(await answers.next()).subject for _ in range(2)} == {"S.to.missed", "S.to.repeated"}
    assert await answers.nothing()
    await clock.advance(49.5)
    assert await answers.nothing()
    await clock.advance(0.6)
    assert (await answers.next()).subject == "S.to.repeated"
    await js.api("STREAM.PURGE.S", {"filter": "S.repeated"})
    seconds = (begun + 600 * SECOND - clock.now) / SECOND
    assert (await until_due(clock, answers, seconds)).subject == "S.to.later"


async def test_ack_waits(js: Client, down: Down, clock: HeldClock) -> None:
    """The wait of a delivered message goes on while the server is down."""
    await js.stream("Q", storage="file")
    await js.consumer("Q", "C", durable_name="C", ack_wait=60 * SECOND)
    await js.store("Q.a")
    answers = await js.pull("Q", "C", batch=10, expires=10**6 * SECOND)
    await answers.next()
    await clock.advance(20)
    await js.store("Q.b")
    await answers.next()
    js = await down(50)
    answers = await js.pull("Q", "C", batch=10, expires=10**6 * SECOND)
    assert (await answers.next()).ack[:2] == (2, 1)
    await clock.advance(9.999)
    assert await answers.nothing()
    await clock.advance(0.002)
    assert (await answers.next()).ack[:2] == (2, 2)


async def test_pauses(js: Client, down: Down, clock: HeldClock) -> None:
    await js.stream("Q", storage="file")
    for name, seconds in (("ENDED", 60), ("GOES_ON", 600)):
        until = rfc3339(clock.now + seconds * SECOND)
        await js.consumer("Q", name, durable_name=name, pause_until=until)
    await js.store("Q.a")
    js = await down(100)
    ended = await js.pull("Q", "ENDED", batch=1, expires=10**6 * SECOND)
    answers = await js.pull("Q", "GOES_ON", batch=1, expires=10**6 * SECOND)
    assert (await ended.next()).ack[1] == 1
    await clock.advance(499.999)
    assert await answers.nothing()
    await clock.advance(0.001)
    assert (await answers.next()).ack[1] == 1


async def test_an_inactive_threshold(js: Client, down: Down, clock: HeldClock) -> None:
    """A restart begins the threshold anew: no client can use a consumer while its server is down."""
    await js.stream("Q", storage="file")
    await js.consumer("Q", "C", durable_name="C", inactive_threshold=60 * SECOND)
    await clock.advance(50)
    js = await down(1000)
    deleted = await js.subscribe("$JS.EVENT.ADVISORY.CONSUMER.DELETED.Q.C")
    await clock.advance(60.099)
    assert await deleted.nothing()
    await clock.advance(0.901)
    await deleted.next()


async def test_message_ids(js: Client, down: Down, clock: HeldClock) -> None:
    """As in nats-server, the first look for ids that are too old comes a window after the start."""
    await js.stream("D", duplicate_window=120 * SECOND, storage="file")
    await js.store("D.a", "Nats-Msg-Id: early")
    await clock.advance(60)
    await js.store("D.a", "Nats-Msg-Id: late")
    js = await down(100)
    assert "duplicate" not in await js.store("D.a", "Nats-Msg-Id: early")
    await clock.advance(119.9)
    assert (await js.store("D.a", "Nats-Msg-Id: late"))["duplicate"] is True
    await clock.advance(0.2)
    assert "duplicate" not in await js.store("D.a", "Nats-Msg-Id: late")


async def test_a_delayed_redelivery(js: Client, down: Down, clock: HeldClock) -> None:
    """A negative acknowledgement's delay goes on while the server is down."""
    await js.stream("Q", storage="file")
    await js.consumer("Q", "C", durable_name="C", ack_wait=600 * SECOND)
    await js.store("Q.a")
    answers = await js.pull("Q", "C", batch=1, expires=10**6 * SECOND)
    await js.request((await answers.next()).reply, b"-NAK 700s")
    js = await down(100)
    answers = await js.pull("Q", "C", batch=1, expires=10**6 * SECOND)
    await clock.advance(599.999)
    assert await answers.nothing()
    await clock.advance(0.002)
    assert (await answers.next()).ack[0] == 2
