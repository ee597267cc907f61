"""Servers under a held clock, in the test's loop, in both ways of serving connections."""

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
    """Starts servers that move with the clock: `await start(max_payload=10)`. They are shut down later."""
    async with AsyncExitStack() as servers:

        async def start(log: Logger | None = None, **options: Any) -> Server:
            defaults: dict[str, Any] = {"host": "127.0.0.1", "port": -1, "io_threads": io_threads}
            server = Server(Options(**defaults | options), log)
            clock.watch(server)
            return await servers.enter_async_context(server)

        yield start


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connects to a server, and closes the connection afterwards."""
    async with AsyncExitStack() as clients:

        async def connect(server: Server, **options: Any) -> Client:
            client = await Client.connect(server, **options)
            clients.push_async_callback(client.close)
            return client

        yield connect


@pytest.fixture
async def js(start: Start, connect: Connect, tmp_path: Path) -> Client:
    """A client of a server with JetStream, which does not ping."""
    server = await start(
        jetstream=JetStreamOptions(enabled=True, store_dir=str(tmp_path)), ping_interval=10**6
    )
    return await connect(server)
