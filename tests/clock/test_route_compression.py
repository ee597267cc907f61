"""Compression of routes in time: how long a peer may take to settle it, and the level by round trip time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from server.peer import Log
from support.clock import HeldClock
from support.s2stream import S2Stream

from gnats import Server
from gnats.go.text import SECOND
from gnats.options.values.cluster import ClusterOptions, Compression

from .client import TIMEOUT
from .conftest import Start

pytestmark = pytest.mark.timeout(60)

PEER = {"server_id": "R", "server_name": "r", "host": "h", "port": 1, "cluster": "C", "headers": True}


class Peer:
    """A server that has dialled, in the test's event loop."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._came = b""
        self.s2: S2Stream | None = None

    def send(self, data: bytes) -> None:
        self._writer.write(self.s2.encode(data) if self.s2 else data)

    async def line(self) -> bytes:
        """Return the next line, and "" at the end."""
        async with asyncio.timeout(TIMEOUT):
            while b"\r\n" not in self._came:
                data = await self._reader.read(1 << 16)
                if not data:
                    return b""
                self._came += self.s2.decode(data) if self.s2 else data
        line, _, self._came = self._came.partition(b"\r\n")
        return line

    async def until(self, found: Callable[[bytes], bool]) -> bytes:
        while not found(line := await self.line()):
            assert line
        return line

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def dial() -> AsyncIterator[Callable[[Server], Any]]:
    peers: list[Peer] = []

    async def dial(server: Server) -> Peer:
        assert server.cluster
        peers.append(Peer(*await asyncio.open_connection("127.0.0.1", server.cluster.port)))
        assert (await peers[-1].line()).startswith(b"INFO ")
        peers[-1].send(b'CONNECT {"name":"R","cluster":"C"}\r\n')
        return peers[-1]

    yield dial
    for peer in peers:
        peer.close()


def info(**members: object) -> bytes:
    return f"INFO {json.dumps(PEER | members)}\r\n".encode()


def cluster(mode: str, **more: Any) -> ClusterOptions:
    return ClusterOptions(name="C", port=-1, compression=Compression(mode), **more)


async def test_a_peer_has_the_time_of_its_pings_to_settle(
    start: Start, dial: Callable[[Server], Any], clock: HeldClock
) -> None:
    log = Log()
    server = await start(log, cluster=cluster("accept", ping_interval=10.0, ping_max=2))
    peer = await dial(server)
    closed = asyncio.create_task(peer.line())
    await clock.advance(29.9)
    assert not closed.done()
    await clock.advance(0.1)
    assert await closed == b"-ERR 'Stale Connection'"
    assert await peer.line() == b""
    await log.seen("Router connection closed: Stale Connection")
    assert server.cluster
    assert server.cluster.stale == 1


async def test_a_peer_that_has_settled_is_pinged(
    start: Start, dial: Callable[[Server], Any], clock: HeldClock
) -> None:
    server = await start(cluster=cluster("accept", ping_interval=10.0, ping_max=2))
    peer = await dial(server)
    await clock.advance(5)
    peer.send(info(compression="off"))
    await clock.advance(1.2)
    assert await peer.until(lambda line: line == b"PING")
    for _ in range(5):
        peer.send(b"PONG\r\n")
        await clock.advance(10)
        assert await peer.until(lambda line: line == b"PING")


async def test_the_level_follows_the_round_trip_time(
    start: Start, dial: Callable[[Server], Any], clock: HeldClock
) -> None:
    server = await start(cluster=cluster("s2_auto", ping_interval=30.0))
    peer = await dial(server)
    peer.send(info(compression="accept"))
    peer.s2 = S2Stream()
    second = json.loads((await peer.until(lambda line: line.startswith(b"INFO ")))[5:])
    assert second["compression"] == "s2_auto"
    peer.send(info(compression="s2_fast"))
    assert server.cluster
    await clock.advance(1.2)
    assert await peer.until(lambda line: line == b"PING")
    peer.send(b"PONG\r\nPING\r\n")
    assert await peer.until(lambda line: line == b"PONG")
    [route] = server.cluster.routes
    assert route.session
    since = route.session.snapshot()["rtt"] / SECOND
    levels = []
    for delay in (0.02, 0.06, 0.2, 0.005, 0.03):
        await clock.advance(30 - since)
        assert await peer.until(lambda line: line == b"PING")
        await clock.advance(delay)
        since = delay
        peer.send(b"PONG\r\nPING\r\n")
        assert await peer.until(lambda line: line == b"PONG")
        await clock.advance(0)
        levels.append(route.compression)
    assert levels == ["s2_fast", "s2_better", "s2_best", "s2_uncompressed", "s2_fast"]
