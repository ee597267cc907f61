"""Clients that publish and listen all the time, and note what is lost, comes twice or in the wrong order."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from support.servers import Server
from support.wire import PING, PONG, connect_op, next_op

from .members import PASSWORD

SUBJECTS = 7
PAUSE = 0.005
"""Seconds from burst to burst of a publisher."""
GROUP = "load.0"
"""The subject that queue groups listen to as well."""


class Wrong(AssertionError):
    """A message came twice, or after a later one."""


class LoadClient:
    """A client of a member of account A, which connects again when the member has started again."""

    def __init__(self, server: Server, number: int) -> None:
        self.server = server
        self.number = number
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Connect; return when the server has read what the client sends first."""
        await self.disconnect()
        self.reader, self.writer = await asyncio.open_connection(*self.server.address)
        await self.reader.readline()
        self.writer.write(connect_op("a", PASSWORD, headers=True) + self.first() + PING)
        while await self.reader.readline() != PONG:
            pass
        self._task = asyncio.create_task(self.run())

    def first(self) -> bytes:
        """Return what to send behind CONNECT."""
        return b""

    async def run(self) -> None:
        raise NotImplementedError

    async def disconnect(self) -> None:
        """Close the connection, if there is one. Raises Wrong when its messages were."""
        if self.writer:
            self.writer.transport.abort()
            self.writer = None
        if self._task:
            self._task.cancel()
            with suppress(asyncio.CancelledError, ConnectionError, EOFError):
                await self._task
            self._task = None

    def check(self) -> None:
        """Raise Wrong if this client has noted so."""
        if self._task and self._task.done() and not self._task.cancelled():
            error = self._task.exception()
            if isinstance(error, Wrong):
                raise error


class Publisher(LoadClient):
    """Publishes its own numbers from 1 on; `sent` is the last one."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(server, number)
        self.sent = 0

    async def run(self) -> None:
        assert self.writer
        with suppress(ConnectionError):
            while True:
                burst = b""
                for _ in range(2):
                    self.sent += 1
                    payload = b"%d %d" % (self.number, self.sent)
                    burst += b"PUB load.%d %d\r\n%b\r\n" % (self.sent % SUBJECTS, len(payload), payload)
                if self.writer.transport.is_closing():
                    return
                self.writer.write(burst)
                await self.writer.drain()
                await asyncio.sleep(PAUSE)


class Group:
    """What the members of one queue group have taken, together."""

    def __init__(self) -> None:
        self.taken: set[bytes] = set()

    def take(self, payload: bytes) -> None:
        if payload in self.taken:
            raise Wrong(f"a queue group got {payload!r} twice")
        self.taken.add(payload)


class Listener(LoadClient):
    """Listens to all publishers, and is a member of a group; it wants further subjects that change.

    `last` is the last number of each publisher, `gaps` are the numbers that it has not got: (first, last).
    """

    def __init__(self, server: Server, number: int, group: Group, rng: random.Random) -> None:
        super().__init__(server, number)
        self.group = group
        self.last: dict[int, int] = {}
        self.gaps: dict[int, list[tuple[int, int]]] = {}
        self.wanted: dict[str, int] = {}
        self._sid = 2
        self._rng = rng

    def first(self) -> bytes:
        lines = b"SUB load.* 1\r\nSUB load.0 g 2\r\n"
        return lines + b"".join(b"SUB %b %d\r\n" % (s.encode(), sid) for s, sid in self.wanted.items())

    @property
    def interest(self) -> set[tuple[str, str]]:
        """The subjects and queue groups that the client has subscribed to."""
        return {("load.*", ""), (GROUP, "g"), *((subject, "") for subject in self.wanted)}

    def churn(self) -> None:
        """Subscribe to a new subject, or end such a subscription."""
        lines = b""
        if self.wanted and self._rng.random() < 0.5:
            sid = self.wanted.pop(self._rng.choice(list(self.wanted)))
            lines = b"UNSUB %d\r\n" % sid
        else:
            self._sid += 1
            subject = f"churn.{self.number}.{self._sid}"
            self.wanted[subject] = self._sid
            lines = b"SUB %b %d\r\n" % (subject.encode(), self._sid)
        if self.writer and not self.writer.transport.is_closing():
            self.writer.write(lines)

    async def run(self) -> None:
        assert self.reader and self.writer
        data = bytearray()
        while chunk := await self.reader.read(1 << 18):
            data += chunk
            start = 0
            while (end := next_op(data, start)) > 0:
                op = bytes(data[start:end])
                start = end
                if op == PING and not self.writer.transport.is_closing():
                    self.writer.write(PONG)
                elif op.startswith(b"MSG "):
                    line, _, body = op.partition(b"\r\n")
                    self._heard(line.split(b" ")[2], body[:-2])
            del data[:start]

    def _heard(self, sid: bytes, payload: bytes) -> None:
        if sid == b"2":
            self.group.take(payload)
            return
        if sid != b"1":
            raise Wrong(f"listener {self.number} got {payload!r} for a subscription without messages")
        publisher, number = map(int, payload.split())
        last = self.last.get(publisher, 0)
        if number <= last:
            raise Wrong(f"listener {self.number} got {number} of publisher {publisher} after {last}")
        if number > last + 1:
            self.gaps.setdefault(publisher, []).append((last + 1, number - 1))
        self.last[publisher] = number

    def lost(self, publisher: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the gaps between two numbers of a publisher."""
        return [gap for gap in self.gaps.get(publisher, ()) if gap[0] <= last and gap[1] >= first]
