"""Timers of pull requests: heartbeats and expiry, with and without messages."""

from __future__ import annotations

from pathlib import Path

from support.clock import HeldClock

from gnats.go.text import SECOND
from gnats.options.values.auth import Permissions, SubjectPermission, User
from gnats.options.values.jetstream import JetStreamOptions

from .client import Client
from .conftest import Connect, Start

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


async def test_a_request_whose_messages_nobody_may_get_rests_between_deliveries(
    start: Start, connect: Connect, clock: HeldClock, tmp_path: Path
) -> None:
    denied = Permissions(subscribe=SubjectPermission(deny=("to.nobody",)))
    server = await start(
        users=[User("js", "pw"), User("barred", "pw", permissions=denied)],
        jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)),
        ping_interval=10**6,
    )
    js = await connect(server, user="js", password="pw")
    barred = await connect(server, user="barred", password="pw")
    await queue(js, ack_wait=3600 * SECOND)
    for _ in range(3):
        await js.store("Q.a")
    listening = await barred.subscribe("to.*")
    barred.publish("$JS.API.CONSUMER.MSG.NEXT.Q.C", b'{"batch":5}', "to.nobody")
    await barred.fence()
    for _ in range(5):  # time stands still
        info = await js.api("CONSUMER.INFO.Q.C")
        assert (info["delivered"]["consumer_seq"], info["num_ack_pending"], info["num_waiting"]) == (3, 3, 1)
    await clock.advance(1)
    assert await listening.nothing()
    tried = (await js.api("CONSUMER.INFO.Q.C"))["delivered"]["consumer_seq"] // 3
    assert 5 <= tried <= 11
    # Another request does not wait for the end of the rest.
    answers = await js.pull("Q", "C", batch=3)
    assert sorted([(await answers.next()).ack[1] for _ in range(3)]) == [1, 2, 3]
