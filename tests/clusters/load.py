"""Clients that publish and listen all the time, and note what is lost, comes twice or in the wrong order."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator
from contextlib import suppress

from support.servers import TIMEOUT, Server
from support.wire import PING, PONG, connect_op, next_op

from .members import PASSWORD

SUBJECTS = 7
AT_ONCE = 20
"""Requests of one client that wait for answers at a time."""
PAUSE = 0.005
"""Seconds from burst to burst of a publisher."""


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

    def send(self, lines: bytes) -> None:
        """Send, unless the connection has gone."""
        if self.writer and not self.writer.transport.is_closing():
            self.writer.write(lines)

    async def ops(self) -> AsyncIterator[bytes]:
        """Yield the messages that come, each with its line; answer the server's PINGs."""
        assert self.reader
        data = bytearray()
        while chunk := await self.reader.read(1 << 18):
            data += chunk
            start = 0
            while (end := next_op(data, start)) > 0:
                op = bytes(data[start:end])
                start = end
                if op == PING:
                    self.send(PONG)
                elif op.startswith((b"MSG ", b"HMSG ")):
                    yield op
            del data[:start]

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
    """What the members of one queue group have taken, together, of the messages on one of the subjects."""

    def __init__(self, name: str = "g", place: int = 0) -> None:
        self.name = name
        self.place = place
        self.taken: set[bytes] = set()

    @property
    def subject(self) -> str:
        return f"load.{self.place}"

    def missing(self, publisher: int, first: int, last: int) -> list[bytes]:
        """Return the messages between two numbers of a publisher that no member has got."""
        numbers = (n for n in range(first, last + 1) if n % SUBJECTS == self.place)
        return [payload for n in numbers if (payload := b"%d %d" % (publisher, n)) not in self.taken]

    def take(self, payload: bytes) -> None:
        if payload in self.taken:
            raise Wrong(f"queue group {self.name} got {payload!r} twice")
        self.taken.add(payload)


class Listener(LoadClient):
    """Listens to all publishers, and is a member of groups; it wants further subjects that change.

    `last` is the last number of each publisher, `gaps` are the numbers that it has not got: (first, last).
    """

    def __init__(self, server: Server, number: int, rng: random.Random, *groups: Group) -> None:
        super().__init__(server, number)
        self.groups = {b"%d" % sid: group for sid, group in enumerate(groups, 2)}
        self.last: dict[int, int] = {}
        self.gaps: dict[int, list[tuple[int, int]]] = {}
        self.wanted: dict[str, int] = {}
        self._sid = 1 + len(groups)
        self._rng = rng

    def first(self) -> bytes:
        lines = b"SUB load.* 1\r\n"
        for sid, group in self.groups.items():
            lines += b"SUB %b %b %b\r\n" % (group.subject.encode(), group.name.encode(), sid)
        return lines + b"".join(b"SUB %b %d\r\n" % (s.encode(), sid) for s, sid in self.wanted.items())

    @property
    def interest(self) -> set[tuple[str, str]]:
        """The subjects and queue groups that the client has subscribed to."""
        members = {(group.subject, group.name) for group in self.groups.values()}
        return {("load.*", "")} | members | {(subject, "") for subject in self.wanted}

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
        self.send(lines)

    async def run(self) -> None:
        async for op in self.ops():
            line, _, body = op.partition(b"\r\n")
            self._heard(line.split(b" ")[2], body[:-2])

    def _heard(self, sid: bytes, payload: bytes) -> None:
        if group := self.groups.get(sid):
            group.take(payload)
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


class Answerer(LoadClient):
    """Answers all requests to its side, as a member of a queue group."""

    def __init__(self, server: Server, number: int, side: str) -> None:
        super().__init__(server, number)
        self.subject = f"ask.{side}"

    def first(self) -> bytes:
        return b"SUB %b workers 1\r\n" % self.subject.encode()

    async def run(self) -> None:
        async for op in self.ops():
            words, _, body = op.partition(b"\r\n")
            reply = words.split(b" ")[-2]
            self.send(b"PUB %b %d\r\n%b" % (reply, len(body) - 2, body))


class Asker(LoadClient):
    """Asks when it is told to, each time with a new inbox."""

    def __init__(self, server: Server, number: int, side: str) -> None:
        super().__init__(server, number)
        self.subject = f"ask.{side}"
        self._numbers = itertools.count(1)
        self._answers: dict[bytes, asyncio.Future[bytes]] = {}

    async def run(self) -> None:
        async for op in self.ops():
            words, _, body = op.partition(b"\r\n")
            inbox = words.split(b" ")[1]
            if not (answer := self._answers.pop(inbox, None)):
                raise Wrong(f"asker {self.number} got an answer to {inbox!r} twice, or late")
            answer.set_result(body[:-2])

    async def ask(self, count: int) -> None:
        """Ask so often, many at a time. Raises TimeoutError when an answer fails to come."""
        for _ in range(count // AT_ONCE):
            answers = [self._one() for _ in range(AT_ONCE)]
            async with asyncio.timeout(TIMEOUT):
                for inbox, answer in answers:
                    assert await answer == inbox, inbox

    def _one(self) -> tuple[bytes, asyncio.Future[bytes]]:
        number = next(self._numbers)
        inbox = b"_INBOX.%d.%d" % (self.number, number)
        lines = b"SUB %b %d\r\nUNSUB %d 1\r\n" % (inbox, number, number)
        self._answers[inbox] = asyncio.get_running_loop().create_future()
        self.send(lines + b"PUB %b %b %d\r\n%b\r\n" % (self.subject.encode(), inbox, len(inbox), inbox))
        return inbox, self._answers[inbox]
