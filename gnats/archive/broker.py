"""What the archive asks a server: about a stream, to purge it, to take messages."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gnats.archive.errors import ArchiveError
from gnats.archive.manifest import Manifest
from gnats.archive.verify import purgeable
from gnats.jetstream.gotime import unix_ns

TIMEOUT = 30.0
"""Seconds for an answer. A purge may take long."""


@dataclass(frozen=True)
class Broker:
    """How a server is reached."""

    server: str = "nats://127.0.0.1:4222"
    creds: str | None = None
    tls_ca: str | None = None
    domain: str | None = None

    @property
    def shown(self) -> str:
        split = urlsplit(self.server if "://" in self.server else f"nats://{self.server}")
        return f"{split.scheme}://{split.netloc.rpartition('@')[2]}"

    @property
    def prefix(self) -> str:
        return f"$JS.{self.domain}.API" if self.domain else "$JS.API"

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Any]:
        """A connection of nats-py. Raises ArchiveError."""
        try:
            import nats
            from nats.errors import Error
        except ImportError:
            raise ArchiveError("nats-py is needed: pip install gnats[archive]") from None

        errors: list[Exception] = []

        async def note(exc: Exception) -> None:
            errors.append(exc)

        options: dict[str, Any] = {
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0.2,
            "connect_timeout": 10,
            "error_cb": note,
        }
        if self.creds:
            options["user_credentials"] = self.creds
        try:
            if self.tls_ca:
                options["tls"] = ssl.create_default_context(cafile=self.tls_ca)
            connection = await nats.connect(self.server, name="gnats archive", **options)
        except (Error, OSError, TimeoutError, ValueError) as exc:
            why = (errors or [exc])[-1]
            raise ArchiveError(f"{self.shown} cannot be reached: {str(why) or type(why).__name__}") from None
        try:
            yield connection
        except (Error, OSError, TimeoutError) as exc:
            raise ArchiveError(f"{self.shown}: {str(exc) or type(exc).__name__}") from None
        finally:
            await connection.close()

    async def ask(self, connection: Any, api: str, request: dict[str, Any] | None = None) -> dict[str, Any]:
        """A request to the JetStream API. Raises ArchiveError when it is refused."""
        body = json.dumps(request).encode() if request else b""
        message = await connection.request(f"{self.prefix}.{api}", body, timeout=TIMEOUT)
        answer: dict[str, Any] = json.loads(message.data)
        if error := answer.get("error"):
            raise ArchiveError(f"{self.shown}: {api}: {error.get('description')}")
        return answer


@dataclass(frozen=True)
class Purged:
    """What a purge has done: messages before `before` went, `count` of them; 0: there was nothing to
    purge."""

    before: int
    count: int


def purge_archived(broker: Broker, manifest: Manifest) -> Purged:
    """Has the server purge what the manifest says is archived and verified: from the stream's first message
    up to the first sequence of which that is not so, and nothing behind it. Raises ArchiveError."""
    return asyncio.run(_purge(broker, manifest))


async def _purge(broker: Broker, manifest: Manifest) -> Purged:
    state = manifest.load()
    stream = state.origin.stream
    if not state.origin.created:
        raise ArchiveError(
            f"{manifest.directory}: it is not known when the stream was created; nothing is purged"
        )
    async with broker.connect() as connection:
        info = await broker.ask(connection, f"STREAM.INFO.{stream}")
        if unix_ns(info["created"]) != unix_ns(state.origin.created):
            raise ArchiveError(
                f"{broker.shown}: stream {stream} was created at {info['created']}, the archived one at "
                f"{state.origin.created}; nothing is purged"
            )
        first = int(info["state"]["first_seq"])
        last = min(purgeable(state, first), int(info["state"]["last_seq"]))
        if last < first:
            return Purged(first, 0)
        answer = await broker.ask(connection, f"STREAM.PURGE.{stream}", {"seq": last + 1})
        return Purged(last + 1, int(answer["purged"]))
