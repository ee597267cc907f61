"""Clients of nats-py, with time for a busy machine: its own limits are 2 s for a login, 5 s for an answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats.aio.client import Client
from nats.js import JetStreamContext

from .servers import TIMEOUT


@asynccontextmanager
async def joined(url: str, **options: Any) -> AsyncIterator[Client]:
    """Connect a client that does not reconnect, and close it at the end.

    `options` are those of nats.connect(). Raises nats.errors.Error when the server refuses it.
    """
    client = Client()
    try:
        await client.connect(url, **{"allow_reconnect": False, "connect_timeout": TIMEOUT} | options)
        yield client
    finally:
        await client.close()


def jetstream(client: Client) -> JetStreamContext:
    return client.jetstream(timeout=TIMEOUT)
