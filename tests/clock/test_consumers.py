"""Timers of consumers: inactivity, pauses, heartbeats, rate limits."""

from __future__ import annotations

from typing import Any

import pytest
from support.clock import HeldClock

from gnats.go.text import SECOND, rfc3339

from .client import Client, header

JITTER = 1.0
"""Seconds at most, by which pull consumers stay longer than their threshold; it is at least a tenth."""
ADVISORIES = "$JS.EVENT.ADVISORY.CONSUMER"


async def gone(js: Client, name: str) -> bool:
    """Return True if the server has deleted a consumer."""
    return name not in (await js.api("CONSUMER.NAMES.Q"))["consumers"]


@pytest.mark.parametrize("durable", [{}, {"durable_name": "C"}], ids=["named", "durable"])
async def test_a_pull_consumer_that_is_not_used_is_deleted(
    js: Client, clock: HeldClock, durable: dict[str, str]
) -> None:
    await js.stream("Q")
    await js.consumer("Q", "C", inactive_threshold=60 * SECOND, **durable)
    deleted = await js.subscribe(f"{ADVISORIES}.DELETED.Q.C")
    await clock.advance(60.099)
    assert not await gone(js, "C")
    await clock.advance(JITTER - 0.099)
    await deleted.next()
    assert await gone(js, "C")


@pytest.mark.parametrize(
    ("push", "until"), [({}, 5.099), ({"deliver_subject": "to.C"}, 4.999)], ids=["pull", "push"]
)
async def test_a_consumer_that_is_not_durable_has_a_threshold(
    js: Client, clock: HeldClock, push: dict[str, str], until: float
) -> None:
    await js.stream("Q")
    await js.consumer("Q", "D", durable_name="D", **push)
    await js.consumer("Q", "C", **push)
    deleted = await js.subscribe(f"{ADVISORIES}.DELETED.Q.*")
    await clock.advance(until)
    assert await deleted.nothing()
    await clock.advance(5 + JITTER - until)
    assert (await deleted.next()).json["consumer"] == "C"
    await clock.jump(10**6)
    assert await deleted.nothing()


async def test_a_message_that_a_client_may_work_on_keeps_a_pull_consumer(
    js: Client, clock: HeldClock
) -> None:
    """The threshold counts from the end of the last ack wait."""
    await js.stream("Q")
    deleted = await js.subscribe(f"{ADVISORIES}.DELETED.Q.*")
    await js.consumer("Q", "C", ack_wait=100 * SECOND, inactive_threshold=10 * SECOND)
    await js.store("Q.a")
    await (await js.pull("Q", "C", batch=1)).next()
    # The message is queued at the end of its ack wait, and has another one to be delivered.
    await clock.advance(210.099)
    assert await deleted.nothing()
    await clock.advance(JITTER)
    assert (await deleted.next()).json["consumer"] == "C"


@pytest.mark.parametrize("wait", [30, 1000])
async def test_an_acknowledgement_is_a_use(js: Client, clock: HeldClock, wait: int) -> None:
    """After it, the threshold passes; a longer ack wait does not matter any more."""
    await js.stream("Q")
    deleted = await js.subscribe(f"{ADVISORIES}.DELETED.Q.*")
    await js.consumer("Q", "C", ack_wait=wait * SECOND, inactive_threshold=60 * SECOND)
    await js.store("Q.a")
    message = await (await js.pull("Q", "C", batch=1)).next()
    await clock.advance(0.9 * wait)
    await js.request(message.reply, b"+ACK")
    await clock.advance(60.099)
    assert await deleted.nothing()
    await clock.advance(JITTER - 0.099)
    assert not await deleted.nothing()


async def test_a_pull_consumer_that_is_used_stays(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    await js.consumer("Q", "C", inactive_threshold=60 * SECOND)
    deleted = await js.subscribe(f"{ADVISORIES}.DELETED.Q.C")
    for _ in range(5):
        await clock.advance(45)
        assert (await js.request("$JS.API.CONSUMER.MSG.NEXT.Q.C", b'{"no_wait":true}')).status
    await clock.advance(60)
    assert await deleted.nothing()
    await clock.advance(JITTER)
    await deleted.next()


async def test_a_request_that_waits_is_a_use(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    await js.consumer("Q", "C", inactive_threshold=10 * SECOND)
    answers = await js.pull("Q", "C", batch=1, expires=100 * SECOND)
    await clock.advance(99.999)
    assert not await gone(js, "C")
    await clock.advance(0.001)
    assert (await answers.next()).status == "408 Request Timeout"
    deleted = await js.subscribe(f"{ADVISORIES}.DELETED.Q.C")
    await clock.advance(20)
    await deleted.next()


@pytest.mark.parametrize("durable", [{}, {"durable_name": "C"}], ids=["named", "durable"])
async def test_a_push_consumer_lives_while_somebody_listens(
    js: Client, clock: HeldClock, durable: dict[str, str]
) -> None:
    await js.stream("Q")
    to = await js.subscribe("to.C")
    deleted = await js.subscribe(f"{ADVISORIES}.DELETED.Q.C")
    config: dict[str, Any] = {"ack_policy": "none", "inactive_threshold": 10 * SECOND, **durable}
    await js.consumer("Q", "C", deliver_subject="to.C", **config)
    await clock.advance(3600)
    await js.store("Q.a")
    assert (await to.next()).ack[1] == 1
    await to.unsubscribe()
    await clock.advance(9.999)
    assert await deleted.nothing()
    await clock.advance(0.001)
    await deleted.next()


async def test_a_pause_ends(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    told = await js.subscribe(f"{ADVISORIES}.PAUSE.Q.C")
    await js.consumer("Q", "C", pause_until=rfc3339(clock.now + 3600 * SECOND))
    assert (await told.next()).json["paused"] is True
    answers = await js.pull("Q", "C", batch=1, expires=7200 * SECOND)
    await js.store("Q.a")
    await clock.advance(3599.999)
    assert await answers.nothing()
    info = await js.api("CONSUMER.INFO.Q.C")
    assert (info["paused"], info["pause_remaining"]) == (True, pytest.approx(SECOND // 1000, abs=1000))
    await clock.advance(0.001)
    assert (await answers.next()).ack[1] == 1
    assert (await told.next()).json["paused"] is False


async def test_a_pause_that_is_ended_before_its_time(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    await js.consumer("Q", "C", pause_until=rfc3339(clock.now + 3600 * SECOND))
    answers = await js.pull("Q", "C", batch=1, expires=7200 * SECOND)
    await js.store("Q.a")
    await clock.advance(60)
    assert await answers.nothing()
    assert (await js.api("CONSUMER.PAUSE.Q.C", {}))["paused"] is False
    assert (await answers.next()).ack[1] == 1


async def test_a_pause_lasts_longer_when_the_clock_is_set_back(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    await js.consumer("Q", "C", pause_until=rfc3339(clock.now + 3600 * SECOND))
    answers = await js.pull("Q", "C", batch=1, expires=10**5 * SECOND)
    await js.store("Q.a")
    await clock.advance(1800)
    clock.set_back(600)
    await clock.advance(2399.999)
    assert await answers.nothing()
    await clock.advance(0.001)
    assert (await answers.next()).ack[1] == 1


async def test_a_paused_push_consumer_has_heartbeats(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    to = await js.subscribe("to.C")
    await js.consumer(
        "Q",
        "C",
        deliver_subject="to.C",
        pause_until=rfc3339(clock.now + 3600 * SECOND),
        idle_heartbeat=5 * SECOND,
    )
    await js.store("Q.a")
    for _ in range(3):
        await clock.advance(4.999)
        assert await to.nothing()
        await clock.advance(0.001)
        assert (await to.next()).status == "100 Idle Heartbeat"


async def test_heartbeats_of_a_push_consumer(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    to = await js.subscribe("to.C")
    await js.consumer("Q", "C", deliver_subject="to.C", ack_policy="none", idle_heartbeat=5 * SECOND)
    await clock.advance(4.999)
    assert await to.nothing()
    await clock.advance(0.001)
    assert (await to.next()).headers == {"Nats-Last-Consumer": "0", "Nats-Last-Stream": "0"}
    await clock.advance(2)
    await js.store("Q.a")
    assert (await to.next()).ack[1] == 1
    await clock.advance(4.999)
    assert await to.nothing()  # the consumer was not idle
    await clock.advance(0.001)
    assert (await to.next()).headers == {"Nats-Last-Consumer": "1", "Nats-Last-Stream": "1"}


async def test_a_consumer_that_waits_for_flow_control_says_so(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    for _ in range(30):
        await js.store("Q.a", payload=b"x" * 100_000)
    to = await js.subscribe("to.C")
    await js.consumer(
        "Q",
        "C",
        deliver_subject="to.C",
        ack_policy="none",
        flow_control=True,
        idle_heartbeat=5 * SECOND,
    )
    request = ""
    got = 0
    while got < 21:  # the first message over the window of 2 MiB
        message = await to.next()
        if message.status == "100 FlowControl Request":
            request = message.reply
        else:
            got += 1
    assert await to.nothing()
    for _ in range(2):
        await clock.advance(4.999)
        assert await to.nothing()
        await clock.advance(0.001)
        beat = await to.next()
        assert (beat.status, beat.headers["Nats-Consumer-Stalled"]) == ("100 Idle Heartbeat", request)
    js.publish(request)
    assert (await to.next()).ack[1] == 22


async def test_flow_control_that_acknowledges_is_asked_for_at_each_heartbeat(
    js: Client, clock: HeldClock
) -> None:
    await js.stream("Q")
    to = await js.subscribe("to.C")
    await js.consumer(
        "Q",
        "C",
        deliver_subject="to.C",
        ack_policy="flow_control",
        flow_control=True,
        idle_heartbeat=SECOND,
        max_ack_pending=100,
    )
    await js.store("Q.a")
    assert (await to.next()).ack[1] == 1
    await clock.advance(0.999)
    assert await to.nothing()
    await clock.advance(0.001)
    assert (await to.next()).status == "100 Idle Heartbeat"
    request = await to.next()
    assert request.status == "100 FlowControl Request"
    await clock.advance(1)
    beat = await to.next()
    assert (beat.status, beat.headers["Nats-Consumer-Stalled"]) == ("100 Idle Heartbeat", request.reply)
    js.publish(request.reply, b"", header=header("Nats-Last-Consumer: 1", "Nats-Last-Stream: 1"))
    for _ in range(2):
        await clock.advance(1)
        beat = await to.next()
        assert (beat.status, beat.headers.get("Nats-Consumer-Stalled")) == ("100 Idle Heartbeat", None)
        assert await to.nothing()


async def test_a_pin_is_renewed_by_use(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    await js.consumer(
        "Q",
        "C",
        ack_wait=3600 * SECOND,
        priority_groups=["g"],
        priority_policy="pinned_client",
        priority_timeout=30 * SECOND,
    )
    unpinned = await js.subscribe(f"{ADVISORIES}.UNPINNED.Q.C")
    await js.store("Q.a")
    first = await (await js.pull("Q", "C", batch=1, expires=600 * SECOND, group="g")).next()
    for _ in range(3):
        await clock.advance(29.999)
        await js.pull("Q", "C", batch=1, expires=SECOND, group="g", id=first.headers["Nats-Pin-Id"])
    await clock.advance(29.999)
    assert await unpinned.nothing()
    await clock.advance(0.001)
    assert (await unpinned.next()).json["reason"] == "timeout"


async def test_a_pin_ends_when_its_client_is_silent(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    await js.consumer(
        "Q",
        "C",
        ack_wait=3600 * SECOND,
        priority_groups=["g"],
        priority_policy="pinned_client",
        priority_timeout=30 * SECOND,
    )
    unpinned = await js.subscribe(f"{ADVISORIES}.UNPINNED.Q.C")
    await js.store("Q.a")
    await (await js.pull("Q", "C", batch=1, expires=20 * SECOND, group="g")).next()
    other = await js.pull("Q", "C", batch=1, expires=600 * SECOND, group="g")
    await js.store("Q.b")
    await clock.advance(29.999)
    assert await unpinned.nothing()
    assert await other.nothing()
    await clock.advance(0.001)
    assert (await unpinned.next()).json["reason"] == "timeout"
    assert (await other.next()).ack[1] == 2


async def test_replay_as_it_was(js: Client, clock: HeldClock) -> None:
    await js.stream("Q")
    for wait in (3600, 0.25):
        await js.store("Q.a")
        await clock.advance(wait)
    await js.store("Q.a")
    to = await js.subscribe("to.C")
    await js.consumer("Q", "C", ack_policy="none", deliver_subject="to.C", replay_policy="original")
    assert (await to.next()).ack[1] == 1
    for seq, wait in ((2, 3600), (3, 0.25)):
        await clock.advance(wait - 0.01)
        assert await to.nothing()
        await clock.advance(0.01)
        assert (await to.next()).ack[1] == seq


async def test_a_rate_limit(js: Client, clock: HeldClock) -> None:
    await js.stream("Q", max_msg_size=10_000)
    for _ in range(20):
        await js.store("Q.a", payload=b"x" * 9_900)
    to = await js.subscribe("to.C")
    await js.consumer("Q", "C", ack_policy="none", deliver_subject="to.C", rate_limit_bps=8 * 10_000)
    await clock.settle()
    at_once = 0
    while not await to.nothing():
        while not to.came.empty():
            to.came.get_nowait()
            at_once += 1
    assert at_once < 5
    begun, got = clock.now, at_once
    while got < 20:
        await clock.advance(0.5)
        await to.nothing()
        got += to.came.qsize()
        while not to.came.empty():
            to.came.get_nowait()
        passed = (clock.now - begun) / SECOND  # seconds, each of which allows 10,000 bytes
        assert passed * 10_000 / 10_100 - 1 <= got - at_once <= passed * 10_000 / 9_900 + 1 or got == 20
    assert clock.now - begun > 14 * SECOND
