"""The Python client nats-py at work with streams, keys and objects: the same test body for every server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy, StorageType, StreamConfig, StreamSource
from nats.js.errors import (
    BadRequestError,
    KeyNotFoundError,
    KeyWrongLastSequenceError,
    NoKeysError,
    NotFoundError,
    ObjectDeletedError,
    ObjectNotFoundError,
)
from support.natspy import jetstream, joined
from support.servers import Server

T = TypeVar("T")
pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]

_names = count(1)


@pytest.fixture(scope="module")
def server(launch_shared: Callable[..., Server]) -> Iterator[Server]:
    yield launch_shared(config="jetstream { store_dir: js }")


@pytest_asyncio.fixture
async def client(server: Server) -> AsyncIterator[Client]:
    async with joined(server.url) as client:
        yield client


@pytest.fixture
def js(client: Client) -> JetStreamContext:
    return jetstream(client)


@pytest.fixture
def name() -> str:
    """A unique name for a stream or a bucket, and for subjects."""
    return f"N{next(_names)}"


@pytest.fixture(params=list(StorageType), ids=lambda storage: storage.value)
def storage(request: pytest.FixtureRequest) -> StorageType:
    found: StorageType = request.param
    return found


async def publish(js: JetStreamContext, subject: str, number: int) -> None:
    """Publish messages 0, 1, 2, ... without waiting for each acknowledgement."""
    acks = [await js.publish_async(subject, b"%d" % n) for n in range(number)]
    await js.publish_async_completed()
    assert [(await ack).seq for ack in acks] == list(range(1, number + 1))


async def test_publish(js: JetStreamContext, name: str, storage: StorageType) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.*"], storage=storage)
    ack = await js.publish(f"{name}.a", b"one", headers={"Nats-Msg-Id": "1"})
    assert (ack.stream, ack.seq, ack.duplicate) == (name, 1, None)
    assert (await js.publish(f"{name}.a", b"one", headers={"Nats-Msg-Id": "1"})).duplicate
    with pytest.raises(BadRequestError, match="wrong last sequence: 1"):
        await js.publish(f"{name}.a", b"two", headers={"Nats-Expected-Last-Sequence": "7"})
    found = await js.get_msg(name, 1)
    assert (found.subject, found.data, found.headers) == (f"{name}.a", b"one", {"Nats-Msg-Id": "1"})
    state = (await js.stream_info(name)).state
    assert (state.messages, state.first_seq, state.last_seq) == (1, 1, 1)
    assert await js.purge_stream(name)
    assert (await js.stream_info(name)).state.messages == 0
    assert await js.delete_stream(name)
    with pytest.raises(NotFoundError):
        await js.stream_info(name)


async def test_pull(js: JetStreamContext, name: str, storage: StorageType) -> None:
    await js.add_stream(name=name, subjects=[name], storage=storage)
    await publish(js, name, 50)
    pull = await js.pull_subscribe(name, durable="D")
    messages = await pull.fetch(20, timeout=30)
    for message in messages:
        await message.ack()
    messages += (rest := await pull.fetch(30, timeout=30, heartbeat=1))
    assert [message.data for message in messages] == [b"%d" % n for n in range(50)]
    assert [message.metadata.sequence.stream for message in messages] == list(range(1, 51))
    await rest[0].nak()
    (again,) = await pull.fetch(1, timeout=30)
    assert (again.data, again.metadata.num_delivered) == (b"20", 2)
    for message in [again, *rest[1:]]:
        await message.ack_sync(timeout=30)
    info = await pull.consumer_info()
    assert (info.num_ack_pending, info.num_pending, info.ack_floor.stream_seq) == (0, 0, 50)
    with pytest.raises(nats.errors.TimeoutError):
        await pull.fetch(1, timeout=0.05)


async def test_ordered_consumer(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name])
    await publish(js, name, 500)
    subscription = await js.subscribe(name, ordered_consumer=True, idle_heartbeat=1)
    for number in range(500):
        assert (await subscription.next_msg(timeout=30)).data == b"%d" % number
    # The client makes another consumer when the first is deleted.
    info = await subscription.consumer_info()
    await js.delete_consumer(name, info.name)
    await js.publish(name, b"after")
    assert (await subscription.next_msg(timeout=30)).data == b"after"


async def test_push_with_flow_control(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name])
    payload = bytes(1000)
    for number in range(1000):
        await js.publish_async(name, b"%d " % number + payload)
    await js.publish_async_completed()
    arrived: asyncio.Queue[Msg] = asyncio.Queue()
    subscription = await js.subscribe(
        name, durable="P", cb=arrived.put, manual_ack=True, flow_control=True, idle_heartbeat=1
    )
    for number in range(1000):
        message = await arrived.get()
        assert message.data.split(b" ")[0] == b"%d" % number
        await message.ack() if number < 999 else await message.ack_sync(timeout=30)
    assert (await subscription.consumer_info()).ack_floor.stream_seq == 1000


async def test_queue_of_a_push_consumer(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[name])
    members = [await js.subscribe(name, queue="workers", durable="workers") for _ in range(2)]
    await publish(js, name, 100)
    found = []

    async def work(member: JetStreamContext.PushSubscription) -> None:
        while len(found) < 100:
            message = await member.next_msg(timeout=30)
            found.append(int(message.data))
            await message.ack()

    working = [asyncio.create_task(work(member)) for member in members]
    await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
    for task in working:
        task.cancel()
    assert sorted(found) == list(range(100))


async def test_mirror_and_source(js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.*"])
    await js.add_stream(name=f"{name}M", mirror=StreamSource(name=name), mirror_direct=True)
    await js.add_stream(name=f"{name}S", sources=[StreamSource(name=name, filter_subject=f"{name}.b")])
    for subject in "abc":
        await js.publish(f"{name}.{subject}", subject.encode())
    mirror = await js.subscribe(f"{name}.*", stream=f"{name}M", ordered_consumer=True)
    source = await js.subscribe(f"{name}.*", stream=f"{name}S", ordered_consumer=True)
    assert [(await mirror.next_msg(timeout=30)).data for _ in range(3)] == [b"a", b"b", b"c"]
    message = await source.next_msg(timeout=30)
    assert message.data == b"b"
    assert message.headers is not None
    assert message.headers["Nats-Stream-Source"].startswith(f"{name} 2 ")
    assert (await js.stream_info(f"{name}M")).mirror.name == name  # type: ignore[union-attr]


async def test_direct_get(js: JetStreamContext, name: str, storage: StorageType) -> None:
    await js.add_stream(name=name, subjects=[f"{name}.*"], storage=storage, allow_direct=True)
    for number in range(5):
        await js.publish(f"{name}.{number % 2}", b"%d" % number, headers={"Number": str(number)})
    found = await js.get_msg(name, 2, direct=True)
    assert (found.seq, found.subject, found.data, found.headers) == (2, f"{name}.1", b"1", found.headers)
    assert found.headers is not None
    assert found.headers["Number"] == "1"
    assert (await js.get_last_msg(name, f"{name}.0", direct=True)).data == b"4"
    assert (await js.get_msg(name, 2, subject=f"{name}.0", next=True, direct=True)).seq == 3
    with pytest.raises(NotFoundError):
        await js.get_msg(name, 9, direct=True)


async def test_account(js: JetStreamContext, name: str) -> None:
    before = await js.account_info()
    await js.add_stream(StreamConfig(name=name, subjects=[name], storage=StorageType.MEMORY))
    await js.publish(name, bytes(1000))
    await js.add_consumer(name, ConsumerConfig(durable_name="D", deliver_policy=DeliverPolicy.NEW))
    after = await js.account_info()
    assert after.memory > before.memory + 1000
    assert (after.streams - before.streams, after.consumers - before.consumers) == (1, 1)
    assert after.api.total > before.api.total
    assert name in [info.config.name for info in await js.streams_info()]


async def listed(ask: Callable[[], Awaitable[list[T]]], number: int) -> list[T]:
    """Return what `ask` finds once it finds `number` entries.

    nats-py asks the consumer how many there are, and misses those that were delivered before the answer.
    """
    while True:
        with suppress(NoKeysError):
            if len(found := await ask()) == number:
                return found


async def updates(watcher: Any, number: int) -> list[tuple[str, bytes | None, str | None] | None]:
    """Return the next updates of a watcher as (key, value, operation); None ends the initial values."""
    found = [await watcher.updates(timeout=30) for _ in range(number)]
    return [each and (each.key, each.value, each.operation) for each in found]


async def test_keys(js: JetStreamContext, name: str, storage: StorageType) -> None:
    kv = await js.create_key_value(bucket=name, history=5, storage=storage)
    watcher = await kv.watch("user.*")
    assert await updates(watcher, 1) == [None]
    assert await kv.put("user.a", b"1") == 1
    assert await kv.create("user.b", b"2") == 2
    with pytest.raises(KeyWrongLastSequenceError):
        await kv.create("user.b", b"again")
    assert await kv.update("user.a", b"3", last=1) == 3
    with pytest.raises(KeyWrongLastSequenceError):
        await kv.update("user.a", b"4", last=1)
    entry = await kv.get("user.a")
    assert (entry.value, entry.revision) == (b"3", 3)
    assert (await kv.get("user.a", revision=1)).value == b"1"
    assert sorted(await listed(kv.keys, 2)) == ["user.a", "user.b"]
    assert await kv.delete("user.b")
    with pytest.raises(KeyNotFoundError):
        await kv.get("user.b")
    assert [each.value for each in await listed(lambda: kv.history("user.a"), 2)] == [b"1", b"3"]
    assert await kv.purge("user.a")
    assert [each.operation for each in await listed(lambda: kv.history("user.a"), 1)] == ["PURGE"]
    assert await updates(watcher, 5) == [
        ("user.a", b"1", None),
        ("user.b", b"2", None),
        ("user.a", b"3", None),
        ("user.b", b"", "DEL"),
        ("user.a", b"", "PURGE"),
    ]
    await kv.put("other", b"5")
    assert await updates(await kv.watchall(), 4) == [
        ("user.b", b"", "DEL"),
        ("user.a", b"", "PURGE"),
        ("other", b"5", None),
        None,
    ]
    await kv.purge_deletes(olderthan=-1)
    status = await kv.status()
    assert (status.values, status.history) == (1, 5)
    assert await js.delete_key_value(name)


async def test_a_key_that_expires(js: JetStreamContext, name: str) -> None:
    """The key is gone, and its watcher gets a PURGE."""
    kv = await js.create_key_value(bucket=name, limit_marker_ttl=60)
    watcher = await kv.watchall()
    assert await updates(watcher, 1) == [None]
    await kv.create("soon", b"1", msg_ttl=1)
    await kv.put("later", b"2")
    assert await updates(watcher, 3) == [("soon", b"1", None), ("later", b"2", None), ("soon", b"", "PURGE")]
    assert not (await kv.get("soon")).value


async def test_objects(js: JetStreamContext, name: str, storage: StorageType) -> None:
    objects = await js.create_object_store(bucket=name, storage=storage)
    watcher = await objects.watch()
    assert await watcher.updates(timeout=30) is None
    data = os.urandom(3 << 20)
    info = await objects.put("large", data)
    assert (info.size, info.chunks) == (len(data), 24)
    await objects.put("small", b"hello")
    found = await objects.get("large")
    assert found.data == data
    assert (await objects.get("small")).data == b"hello"
    await objects.put("small", b"other")
    assert (await objects.get("small")).data == b"other"
    assert sorted(each.name for each in await objects.list()) == ["large", "small"]
    await objects.delete("small")
    with pytest.raises((ObjectNotFoundError, ObjectDeletedError)):
        await objects.get("small")
    told = [await watcher.updates(timeout=30) for _ in range(4)]
    assert [(each.name, bool(each.deleted)) for each in told if each] == [
        ("large", False),
        ("small", False),
        ("small", False),
        ("small", True),
    ]
    await objects.seal()
    assert (await objects.status()).sealed
    with pytest.raises(BadRequestError, match="sealed"):
        await objects.put("late", b"x")
    assert await js.delete_object_store(name)
