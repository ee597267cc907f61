"""A TCP proxy before the port of a member that harms the routes which go through it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

PASS, REFUSE, PAUSE, SWALLOW, SLOW = "pass", "refuse", "pause", "swallow", "slow"
MODES = (REFUSE, PAUSE, SWALLOW, SLOW)
"""What a proxy does but pass: reset all connections and new ones; read nothing; read and drop everything, so
that both ends believe the connection is there; pass PIECE bytes at a time."""
DEAF, MUTE = "deaf", "mute"
"""Drop what the solicitor sends, or what the target sends, and pass the other direction."""
PIECE = 1000
SLOWLY = 0.002
"""Seconds from piece to piece."""


class Proxy:
    """Listens on a port of its own and passes each connection on to the port that `target` returns."""

    def __init__(self, target: Callable[[], int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.mode = PASS
        self._changed = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._spoilt: set[asyncio.StreamWriter] = set()
        """Ends to which something has not been passed on."""
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, sock=self._listener)

    def set(self, mode: str) -> None:
        """Change what happens to the connections; those that have lost bytes are reset when they may pass."""
        self.mode = mode
        if mode == REFUSE:
            self._reset(self._writers)
        elif mode not in (SWALLOW, DEAF, MUTE):
            self._reset(self._spoilt)
        self._changed.set()
        self._changed = asyncio.Event()

    def _reset(self, writers: set[asyncio.StreamWriter]) -> None:
        for writer in list(writers):
            writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == REFUSE:
            writer.transport.abort()
            return
        handler = asyncio.current_task()
        assert handler
        self._handlers.add(handler)  # before anything is waited for: close() waits for handlers
        handler.add_done_callback(self._handlers.discard)
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target())
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, there[1]}
        if self.mode == REFUSE:
            self._reset(ends)
            return
        self._writers |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, there[1], ends, (SWALLOW, DEAF)))
                group.create_task(self._pump(there[0], writer, ends, (SWALLOW, MUTE)))
        finally:
            for end in ends:
                end.transport.abort()
            self._writers -= ends
            self._spoilt -= ends

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
        drops: tuple[str, ...],
    ) -> None:
        """Pass on what one end sends until it closes, or is reset; drop it in some modes."""
        with suppress(ConnectionError):
            while True:
                while self.mode == PAUSE:
                    await self._changed.wait()
                data = await reader.read(PIECE if self.mode == SLOW else 1 << 18)
                while self.mode == PAUSE:
                    await self._changed.wait()
                if not data:
                    break
                if self.mode in drops or writer in self._spoilt:
                    self._spoilt.add(writer)
                    continue
                writer.write(data)
                await writer.drain()
                if self.mode == SLOW:
                    await asyncio.sleep(SLOWLY)
        for end in ends:
            end.transport.abort()

    async def close(self) -> None:
        self.set(REFUSE)
        if self._server:
            self._server.close()
            await self._server.wait_closed()
        await asyncio.gather(*self._handlers)
