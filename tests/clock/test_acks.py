"""Redelivery of unacknowledged messages: when they come again."""

from __future__ import annotations

import pytest
from support.caller import Message
from support.clock import HeldClock

from gnats.go.text import SECOND

from .client import Client, Subscription

DAY = 24 * 3600
DUE = 0.002
"""Seconds from 1 ms before a deadline until acks are looked for, 1 ms late: more may become due by then."""


async def setup(js: Client, n: int = 1, **config: object) -> None:
    """Make a stream of n messages with a consumer C."""
    await js.stream("Q")
    await js.consumer("Q", "C", **config)
    for _ in range(n):
        await js.store("Q.a")


async def listen(js: Client, n: int = 10) -> Subscription:
    return await js.pull("Q", "C", batch=n, expires=7 * DAY * SECOND)


async def answer(js: Client, message: Message, what: bytes) -> None:
    """Send an acknowledgement and wait until the server has handled it."""
    await js.request(message.reply, what)


async def test_the_ack_wait_ends(js: Client, clock: HeldClock) -> None:
    await setup(js, 3, ack_wait=30 * SECOND)
    answers = await listen(js)
    messages = [await answers.next() for _ in range(3)]
    await answer(js, messages[1], b"+ACK")
    await clock.advance(29.999)
    assert await answers.nothing()
    await clock.advance(DUE)
    assert [(await answers.next()).ack for _ in range(2)] == [(2, 1, 4, 0), (2, 3, 5, 0)]
    await clock.advance(29.999)
    assert await answers.nothing()
    await clock.advance(DUE)
    assert [(await answers.next()).ack for _ in range(2)] == [(3, 1, 6, 0), (3, 3, 7, 0)]


async def test_each_message_has_its_own_ack_wait(js: Client, clock: HeldClock) -> None:
    await setup(js, 0, ack_wait=10 * SECOND)
    answers = await listen(js)
    for _ in range(3):
        await js.store("Q.a")
        await clock.advance(2)
    assert [(await answers.next()).ack[1] for _ in range(3)] == [1, 2, 3]
    for seq, wait in ((1, 3.9), (2, 1.9), (3, 1.9)):
        await clock.advance(wait)
        assert await answers.nothing()
        await clock.advance(0.1 + DUE)
        assert (await answers.next()).ack[:2] == (2, seq)
        assert await answers.nothing()


async def test_messages_come_again_to_whoever_asks_later(js: Client, clock: HeldClock) -> None:
    await setup(js, ack_wait=5 * SECOND)
    first = await listen(js, 1)
    await first.next()
    await clock.jump(DAY)
    assert (await (await listen(js, 1)).next()).ack[0] == 2


async def test_progress_begins_the_ack_wait_anew(js: Client, clock: HeldClock) -> None:
    await setup(js, ack_wait=10 * SECOND)
    answers = await listen(js)
    message = await answers.next()
    for _ in range(3):
        await clock.advance(9.999)
        await answer(js, message, b"+WPI")
    await clock.advance(9.999)
    assert await answers.nothing()
    await clock.advance(DUE)
    assert (await answers.next()).ack[0] == 2


async def test_back_off_has_a_wait_for_each_delivery(js: Client, clock: HeldClock) -> None:
    await setup(js, backoff=[SECOND, 5 * SECOND, 60 * SECOND], max_deliver=5)
    answers = await listen(js)
    await answers.next()
    for deliveries, wait in ((2, 1), (3, 5), (4, 60), (5, 60)):
        await clock.advance(wait - 0.01)
        assert await answers.nothing()
        await clock.advance(0.01 + DUE)
        assert (await answers.next()).ack[0] == deliveries
    await clock.jump(DAY)
    assert await answers.nothing()


@pytest.mark.parametrize("delay", [b"20s", b'{"delay": 20000000000}'])
async def test_a_nak_with_a_delay(js: Client, clock: HeldClock, delay: bytes) -> None:
    await setup(js)
    answers = await listen(js)
    await answer(js, await answers.next(), b"-NAK " + delay)
    await clock.advance(19.999)
    assert await answers.nothing()
    await clock.advance(DUE)
    assert (await answers.next()).ack == (2, 1, 2, 0)


async def test_a_nak_with_a_delay_longer_than_the_ack_wait(js: Client, clock: HeldClock) -> None:
    await setup(js, ack_wait=SECOND)
    answers = await listen(js)
    await answer(js, await answers.next(), b"-NAK 1h")
    await clock.advance(3599.999)
    assert await answers.nothing()
    await clock.advance(DUE)
    assert (await answers.next()).ack[0] == 2


async def test_deliveries_end_at_max_deliver(js: Client, clock: HeldClock) -> None:
    await setup(js, 2, ack_wait=SECOND, max_deliver=2)
    told = await js.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.Q.C")
    answers = await listen(js)
    assert [(await answers.next()).ack[:2] for _ in range(2)] == [(1, 1), (1, 2)]
    await clock.advance(0.999)
    assert await answers.nothing()
    await clock.advance(DUE)
    assert [(await answers.next()).ack[:2] for _ in range(2)] == [(2, 1), (2, 2)]
    await clock.advance(0.999)
    assert await told.nothing()
    await clock.advance(DUE)
    assert {(await told.next()).json["stream_seq"] for _ in range(2)} == {1, 2}
    await js.store("Q.b")
    assert (await answers.next()).ack[:3] == (1, 3, 5)
    await clock.advance(0.999)
    assert await answers.nothing()


async def test_an_ack_in_time_ends_the_wait(js: Client, clock: HeldClock) -> None:
    await setup(js, ack_wait=SECOND)
    answers = await listen(js)
    message = await answers.next()
    await clock.advance(0.999)
    await answer(js, message, b"+ACK")
    await clock.advance(60)
    await clock.jump(DAY)
    assert await answers.nothing()


async def test_waits_of_centuries_do_not_end(js: Client, clock: HeldClock) -> None:
    await setup(js, ack_wait=7 * 10**18)
    answers = await js.pull("Q", "C", batch=2, expires=7 * 10**18)
    await answers.next()
    for _ in range(3):
        await clock.jump(366 * DAY)
        assert await answers.nothing()


async def test_the_ack_wait_of_a_push_consumer(js: Client, clock: HeldClock) -> None:
    to = await js.subscribe("to.C")
    await setup(js, 2, deliver_subject="to.C", ack_wait=30 * SECOND)
    first, second = await to.next(), await to.next()
    await clock.advance(10)
    await answer(js, first, b"+ACK")
    await clock.advance(19.999)
    assert await to.nothing()
    await clock.advance(DUE)
    assert (await to.next()).ack == (2, 2, 3, 0)
    await clock.advance(29.999)
    assert await to.nothing()
    await clock.advance(DUE)
    assert (await to.next()).ack == (3, 2, 4, 0)
    await answer(js, second, b"+ACK")
    await clock.jump(DAY)
    assert await to.nothing()


async def test_max_deliver_of_a_push_consumer(js: Client, clock: HeldClock) -> None:
    to = await js.subscribe("to.C")
    told = await js.subscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.Q.C")
    await setup(js, deliver_subject="to.C", ack_wait=SECOND, max_deliver=2)
    await to.next()
    await clock.advance(1 + DUE)
    assert (await to.next()).ack[0] == 2
    await clock.advance(0.999)
    assert await told.nothing()
    await clock.advance(DUE)
    assert (await told.next()).json["deliveries"] == 2
    await clock.jump(DAY)
    assert await to.nothing()


async def test_an_ack_of_all_ends_the_waits_of_earlier_messages(js: Client, clock: HeldClock) -> None:
    await setup(js, 4, ack_policy="all", ack_wait=30 * SECOND)
    answers = await listen(js)
    messages = [await answers.next() for _ in range(4)]
    await clock.advance(29.999)
    await answer(js, messages[2], b"+ACK")
    assert await answers.nothing()
    await clock.advance(DUE)
    assert (await answers.next()).ack[:2] == (2, 4)
    assert await answers.nothing()


async def test_progress_under_a_back_off_begins_the_present_wait_anew(js: Client, clock: HeldClock) -> None:
    await setup(js, backoff=[SECOND, 5 * SECOND], max_deliver=5)
    answers = await listen(js)
    message = await answers.next()
    for deliveries, wait in ((2, 1), (3, 5)):
        for _ in range(2):
            await clock.advance(wait - 0.001)
            await answer(js, message, b"+WPI")
        await clock.advance(wait - 0.001)
        assert await answers.nothing()
        await clock.advance(DUE)
        message = await answers.next()
        assert message.ack[0] == deliveries
