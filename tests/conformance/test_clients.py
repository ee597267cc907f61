"""The Python client nats-py at work: the same test body for every server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import (
    ConnectionClosedError,
    ConnectionDrainingError,
    Error,
    MaxPayloadError,
    NoRespondersError,
    SlowConsumerError,
)
from support.launch import Launch
from support.natspy import joined
from support.servers import Server

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]

Connect = Callable[..., "asyncio.Future[Client]"]


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with joined(server.url) as client:
        yield client


@pytest_asyncio.fixture
async def other(server: Server) -> AsyncIterator[Client]:
    async with joined(server.url) as client:
        yield client


async def collect(subscription: AsyncIterator[Msg], number: int) -> list[bytes]:
    """Return the payloads of the next `number` messages."""
    return [(await subscription.__anext__()).data for _ in range(number)]


async def fence(*clients: Client) -> None:
    """Wait until the server has handled everything that these clients sent, and they have read its answers.

    (The client's flush() sends its PING ahead of commands that still wait to be written.)
    """
    for client in clients:
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        await client.publish(inbox)
        await subscription.next_msg(timeout=30)
        await subscription.unsubscribe()


async def wait_until_nobody_listens(client: Client, subject: str) -> None:
    """Wait until a request has no responders: a server may notice late that a subscriber has closed."""
    while True:
        try:
            await client.request(subject, b"anyone?", timeout=1)
        except NoRespondersError:
            return
        except TimeoutError:
            pass


async def test_publish_and_subscribe(client: Client, other: Client) -> None:
    subject = client.new_inbox()
    subscription = await client.subscribe(subject + ".*")
    await fence(client)
    for number in range(100):
        await other.publish(f"{subject}.{number}", b"%d" % number)
    await fence(other)
    messages = [await subscription.next_msg(timeout=30) for _ in range(100)]
    assert [(m.subject, m.data) for m in messages] == [(f"{subject}.{n}", b"%d" % n) for n in range(100)]
    await subscription.unsubscribe()
    await other.publish(f"{subject}.x", b"late")
    await fence(other, client)
    assert subscription.pending_msgs == 0


async def test_request_and_reply(client: Client, other: Client) -> None:
    subject = client.new_inbox()

    async def answer(message: Msg) -> None:
        await message.respond(message.data.upper())

    await other.subscribe(subject, cb=answer)
    await fence(other)
    answers = await asyncio.gather(*(client.request(subject, b"n%d" % n, timeout=30) for n in range(200)))
    assert [answer.data for answer in answers] == [b"N%d" % n for n in range(200)]
    old_style = await client.request(subject, b"old", timeout=30, old_style=True)
    assert old_style.data == b"OLD"


async def test_request_that_nobody_answers(client: Client) -> None:
    with pytest.raises(NoRespondersError):
        await client.request(client.new_inbox(), b"anyone?", timeout=30)
    with pytest.raises(NoRespondersError):
        await client.request(client.new_inbox(), b"anyone?", timeout=30, old_style=True)


async def test_queue_group(client: Client, other: Client) -> None:
    subject = client.new_inbox()
    members = [await c.subscribe(subject, queue="workers") for c in (client, other) for _ in range(3)]
    everything = await client.subscribe(subject)
    await fence(client, other)
    for number in range(600):
        await client.publish(subject, b"%d" % number)
    await fence(client, other)
    assert await collect(everything.messages, 600) == [b"%d" % n for n in range(600)]
    counts = [member.pending_msgs for member in members]
    assert sum(counts) == 600
    assert all(counts), counts


async def test_auto_unsubscribe(client: Client, other: Client) -> None:
    subject = client.new_inbox()
    subscription = await client.subscribe(subject)
    await subscription.unsubscribe(limit=5)
    await fence(client)
    for number in range(20):
        await other.publish(subject, b"%d" % number)
    await fence(other, client)
    assert [message.data async for message in subscription.messages] == [b"%d" % n for n in range(5)]


async def test_headers(client: Client, other: Client) -> None:
    subject = client.new_inbox()
    subscription = await client.subscribe(subject)
    await fence(client)
    headers = {"Key": "value", "Other-Key": "another: value", "Empty": "", "Value": "ÿes"}
    await other.publish(subject, b"payload", headers=headers)
    await other.publish(subject, b"", headers={"Only": "headers"})
    await other.publish(subject, b"none")
    with_payload, empty, none = [await subscription.next_msg(timeout=30) for _ in range(3)]
    assert (with_payload.data, with_payload.headers) == (b"payload", headers)
    assert (empty.data, empty.headers) == (b"", {"Only": "headers"})
    assert (none.data, none.headers) == (b"none", None)


async def test_drain(server: Server, other: Client) -> None:
    """drain() handles the messages that have arrived, unsubscribes, and closes."""
    async with joined(server.url) as client:
        subject = other.new_inbox()
        handled = []

        async def handle(message: Msg) -> None:
            await asyncio.sleep(0)
            handled.append(message.data)
            await message.respond(message.data)

        await client.subscribe(subject, cb=handle)
        await fence(client)
        replies = await other.subscribe(subject + ".reply")
        for number in range(100):
            await other.publish(subject, b"%d" % number, reply=subject + ".reply")
        await fence(other, client)
        await client.drain()
        assert client.is_closed
        assert handled == [b"%d" % n for n in range(100)]
        assert await collect(replies.messages, 100) == handled
        await wait_until_nobody_listens(other, subject)
        with pytest.raises((ConnectionClosedError, ConnectionDrainingError)):
            await client.publish(subject, b"late")


async def test_drain_of_a_subscription(client: Client, other: Client) -> None:
    subject = client.new_inbox()
    handled = []

    async def handle(message: Msg) -> None:
        handled.append(message.data)

    subscription = await client.subscribe(subject, cb=handle)
    await fence(client)
    for number in range(10):
        await other.publish(subject, b"%d" % number)
    await fence(other, client)
    await subscription.drain()  # type: ignore[no-untyped-call]
    assert handled == [b"%d" % n for n in range(10)]
    await wait_until_nobody_listens(other, subject)


async def test_reconnect_after_a_restart(launch: Launch) -> None:
    server = launch()
    disconnected, reconnected = asyncio.Event(), asyncio.Event()

    async def on_disconnect() -> None:
        disconnected.set()

    async def on_reconnect() -> None:
        reconnected.set()

    async with joined(
        server.url,
        allow_reconnect=True,
        disconnected_cb=on_disconnect,
        reconnected_cb=on_reconnect,
        reconnect_time_wait=0.1,
        max_reconnect_attempts=-1,
    ) as client:
        subscription = await client.subscribe("restart.*")
        await client.publish("restart.a", b"before")
        assert (await subscription.next_msg(timeout=30)).data == b"before"
        await asyncio.to_thread(server.stop)
        await disconnected.wait()
        await asyncio.to_thread(server.start_again)
        await reconnected.wait()
        await client.publish("restart.b", b"after")
        assert (await subscription.next_msg(timeout=30)).data == b"after"


async def test_maximum_payload(launch: Launch) -> None:
    server = launch(config="max_payload: 1024")
    async with joined(server.url) as client:
        assert client.max_payload == 1024
        subscription = await client.subscribe("large")
        await client.publish("large", b"x" * 1024)
        assert len((await subscription.next_msg(timeout=30)).data) == 1024
        with pytest.raises(MaxPayloadError):
            await client.publish("large", b"x" * 1025)


async def test_large_payloads(client: Client, other: Client) -> None:
    subject = client.new_inbox()
    subscription = await client.subscribe(subject)
    await fence(client)
    payloads = [bytes([n]) * (1 << 20) for n in range(8)]
    for payload in payloads:
        await other.publish(subject, payload)
    assert [(await subscription.next_msg(timeout=30)).data for _ in payloads] == payloads


async def test_flush_measures_the_way_there_and_back(client: Client) -> None:
    for _ in range(10):
        await client.flush()
    assert await client.rtt() > 0


async def test_thousand_subscriptions_on_a_connection(client: Client, other: Client) -> None:
    subject = client.new_inbox()
    counts: Counter[str] = Counter()
    expected = 1000
    complete = asyncio.Event()

    async def handle(message: Msg) -> None:
        counts[message.subject] += 1
        if counts.total() == expected:
            complete.set()

    async def publish_to_all() -> None:
        for number in range(1000):
            await other.publish(f"{subject}.{number}", b"x")
        await complete.wait()

    subscriptions = [await client.subscribe(f"{subject}.{n}", cb=handle) for n in range(1000)]
    await fence(client)
    await publish_to_all()
    for subscription in subscriptions[::2]:
        await subscription.unsubscribe()
    await fence(client)
    complete.clear()
    expected += 500
    await publish_to_all()
    await fence(other, client)
    assert counts == {f"{subject}.{n}": 1 + n % 2 for n in range(1000)}


async def test_no_echo(server: Server, other: Client) -> None:
    async with joined(server.url, no_echo=True) as client:
        subject = client.new_inbox()
        mine, others = await client.subscribe(subject), await other.subscribe(subject)
        await fence(other)
        await client.publish(subject, b"to others")
        assert (await others.next_msg(timeout=30)).data == b"to others"
        await other.publish(subject, b"to all")
        assert (await mine.next_msg(timeout=30)).data == b"to all"


async def test_pedantic_and_verbose(server: Server) -> None:
    async with joined(server.url, pedantic=True, verbose=True) as client:
        subject = client.new_inbox()
        subscription = await client.subscribe(subject)
        for number in range(10):
            await client.publish(subject, b"%d" % number)
        assert await collect(subscription.messages, 10) == [b"%d" % n for n in range(10)]


async def test_token(launch: Launch) -> None:
    server = launch("--auth", "t0ken")
    await assert_accepted(server.url, token="t0ken")
    await assert_accepted(f"nats://t0ken@{server.host}:{server.port}")
    refused: tuple[dict[str, str], ...] = ({}, {"token": "wrong"}, {"user": "me", "password": "t0ken"})
    for options in refused:
        await assert_refused(server.url, **options)


async def test_user_and_password(launch: Launch) -> None:
    server = launch("--user", "me", "--pass", "s3cret")
    await assert_accepted(server.url, user="me", password="s3cret")
    await assert_accepted(f"nats://me:s3cret@{server.host}:{server.port}")
    refused: tuple[dict[str, str], ...] = (
        {},
        {"token": "s3cret"},
        {"user": "me", "password": "wrong"},
        {"user": "me"},
    )
    for options in refused:
        await assert_refused(server.url, **options)


async def assert_accepted(url: str, **options: Any) -> None:
    async with joined(url, **options) as client:
        await fence(client)


async def assert_refused(url: str, **options: Any) -> None:
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    with pytest.raises(Error, match=r"(?i)authorization violation"):
        async with joined(url, error_cb=errors.put, **options):
            pass


async def test_subscriber_that_is_slow_in_the_client_loses_messages_and_stays(
    server: Server, other: Client
) -> None:
    """The limit is the client's own on pending messages, not the server's."""
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    async with joined(server.url, error_cb=errors.put) as slow:
        subject = slow.new_inbox()
        subscription = await slow.subscribe(subject, pending_msgs_limit=10)
        await fence(slow)
        for number in range(20):
            await other.publish(subject, b"%d" % number)
        await fence(other)
        await fence(slow)
        assert isinstance(await errors.get(), SlowConsumerError)
        assert await collect(subscription.messages, 10) == [b"%d" % n for n in range(10)]
