"""A raw client and a log in the test's event loop."""

import asyncio
import json
from typing import Any, Self

from support.wire import CRLF, PING, PONG, connect_op, split_ops

from gnats.log.logger import Logger

TIMEOUT = 30.0


class Log(Logger):
    """A log at debug level that keeps its lines as "[LVL] text"; tests can wait for a line."""

    def __init__(self) -> None:
        super().__init__(self._add, debug=True, logtime=False)
        self.lines: list[str] = []
        self._changed = asyncio.Event()

    def _add(self, line: bytes) -> None:
        self.lines.append(line.decode().split("] ", 1)[1].rstrip("\n"))
        self._changed.set()

    def with_text(self, text: str) -> list[str]:
        return [line for line in self.lines if text in line]

    async def seen(self, text: str, times: int = 1) -> None:
        """Return when `times` lines contain the text."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.with_text(text)) < times:
                self._changed.clear()
                await self._changed.wait()


class Peer:
    """A connection that has read INFO; a read raises TimeoutError after TIMEOUT seconds.

    It answers the server's PINGs and returns none: the first comes about two seconds after CONNECT.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.info: dict[str, Any] = {}

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1") -> Self:
        peer = cls(*await asyncio.open_connection(host, port))
        try:
            peer.info = json.loads((await peer.line()).removeprefix(b"INFO "))
        except BaseException:
            await peer.close()
            raise
        return peer

    @property
    def address(self) -> str:
        host, port = self._writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def line(self) -> bytes:
        """Return the next line without its end. Raises EOFError at the end of the connection."""
        async with asyncio.timeout(TIMEOUT):
            while (line := await self._reader.readline()) == PING:
                self.send(PONG)
        if not line.endswith(CRLF):
            raise EOFError(line)
        return line[:-2]

    async def ask(self, data: bytes) -> list[bytes]:
        """Send data and a PING; return the lines before the PONG."""
        self.send(data + PING)
        lines: list[bytes] = []
        while (line := await self.line()) != b"PONG":
            lines.append(line)
        return lines

    async def connected(self, **options: object) -> list[bytes]:
        """Send a CONNECT, not verbose unless given, and a PING; return the lines before the PONG."""
        return await self.ask(connect_op(**options))

    def pause(self) -> None:
        """Stop reading; later bytes stay in the kernel."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    async def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        async with asyncio.timeout(TIMEOUT):
            data = await self._reader.read()
        return b"".join(op for op in split_ops(data) if op != PING)

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return
