"""Fixtures for servers inside the test's own process, without and with I/O threads."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from gnats import Options, Server

from .peer import Log, Peer

Start = Callable[..., Awaitable[Server]]
Connect = Callable[[Server], Awaitable[Peer]]


@pytest.fixture
async def start(io_threads: int) -> AsyncIterator[Start]:
    """Start servers in the test's event loop: `await start(max_payload=10)`; shut them down at the end."""
    async with AsyncExitStack() as servers:

        async def start(log: Log | None = None, opts: Options | None = None, **options: Any) -> Server:
            defaults: dict[str, Any] = {"host": "127.0.0.1", "port": -1, "io_threads": io_threads}
            server = Server(replace(opts or Options(), **defaults | options), log)
            return await servers.enter_async_context(server)

        yield start


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to a server; close the connections at the end."""
    peers: list[Peer] = []

    async def connect(server: Server) -> Peer:
        peers.append(await Peer.connect(server.port))
        return peers[-1]

    yield connect
    for peer in peers:
        await peer.close()
