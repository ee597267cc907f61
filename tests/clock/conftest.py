"""Servers under a held clock in the test's event loop, without and with I/O threads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from support.clock import HeldClock

from gnats import Options, Server
from gnats.log.logger import Logger
from gnats.options.values.jetstream import JetStreamOptions

from .client import Client

Start = Callable[..., Awaitable[Server]]
Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def start(clock: HeldClock, io_threads: int) -> AsyncIterator[Start]:
    """Start servers that move with the clock: `await start(max_payload=10)`; shut them down at the end."""
    async with AsyncExitStack() as servers:

        async def start(log: Logger | None = None, **options: Any) -> Server:
            defaults: dict[str, Any] = {"host": "127.0.0.1", "port": -1, "io_threads": io_threads}
            server = Server(Options(**defaults | options), log)
            clock.watch(server)
            return await servers.enter_async_context(server)

        yield start


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to a server; close the connections at the end."""
    async with AsyncExitStack() as clients:

        async def connect(server: Server, **options: Any) -> Client:
            client = await Client.connect(server, **options)
            clients.push_async_callback(client.close)
            return client

        yield connect


@pytest.fixture
async def js(start: Start, connect: Connect, tmp_path: Path) -> Client:
    """A client of a server with JetStream; the server does not ping."""
    server = await start(
        jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)), ping_interval=10**6
    )
    return await connect(server)
