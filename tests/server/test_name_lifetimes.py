"""Streams and consumers that come and go leave nothing of their names in the control plane."""

import gc
import json
from pathlib import Path

import pytest

from gnats import Server
from gnats.options.values.jetstream import JetStreamOptions

from .conftest import Connect, Start
from .peer import Peer

pytestmark = pytest.mark.timeout(120)

AT_ONCE = 40


class Asker:
    """A raw connection that sends requests to the JetStream API."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def ask(self, subject: str, body: object = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self._peer.send(b"PUB $JS.API.%b reply %d\r\n%b\r\n" % (subject.encode(), len(data), data))
        assert (await self._peer.line()).startswith(b"MSG reply ")
        answer = await self._peer.line()
        assert b'"error"' not in answer, answer

    async def stream_and_consumer(self, number: int, storage: str) -> None:
        """Make a stream and a consumer, store a message, ask for their infos, and delete them."""
        stream, consumer = f"S{number}", f"C{number}"
        await self.ask(
            f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"s{number}"], "storage": storage}
        )
        config = {"durable_name": consumer, "ack_policy": "explicit"}
        await self.ask(f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config})
        await self._peer.ask(b"PUB s%d 2\r\nhi\r\n" % number)
        await self.ask(f"CONSUMER.INFO.{stream}.{consumer}")
        await self.ask(f"CONSUMER.DELETE.{stream}.{consumer}")
        await self.ask(f"STREAM.DELETE.{stream}")


def held(server: Server) -> tuple[int, int]:
    """Return the number of objects that the garbage collector tracks, and of all items in containers."""
    assert server.js_engine is not None
    server.js_engine.reap()
    gc.collect()
    objects = gc.get_objects()
    return len(objects), sum(len(each) for each in objects if isinstance(each, dict | list | set))


@pytest.mark.parametrize("storage", ["memory", "file"])
async def test_names_that_come_and_go_are_forgotten(
    start: Start, connect: Connect, tmp_path: Path, storage: str
) -> None:
    server = await start(jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)))
    peer = await connect(server)
    await peer.connected()
    await peer.ask(b"SUB reply 1\r\n")
    asker = Asker(peer)
    for number in range(AT_ONCE):
        await asker.stream_and_consumer(number, storage)
    objects, entries = held(server)
    subscriptions = server.num_subscriptions
    for number in range(AT_ONCE, 4 * AT_ONCE):
        await asker.stream_and_consumer(number, storage)
    later = held(server)
    assert server.num_subscriptions == subscriptions
    # One object left for each name would be three times this number.
    assert later[0] - objects < AT_ONCE
    assert later[1] - entries < AT_ONCE
