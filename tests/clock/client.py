"""A client in the test's event loop that reads all the time, answers PINGs, and keeps messages."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any, Self

from support.caller import Message, parse
from support.wire import PING, PONG, connect_op, next_op, publish_op

from gnats import Server

TIMEOUT = 30.0
"""Seconds of real time that an answer may take on a busy machine."""


class Subscription:
    """The messages that came for one SUB."""

    def __init__(self, client: Client, sid: str) -> None:
        self._client = client
        self.sid = sid
        self.came: asyncio.Queue[Message] = asyncio.Queue()

    async def next(self) -> Message:
        """Wait for the next message."""
        async with asyncio.timeout(TIMEOUT):
            return await self.came.get()

    async def nothing(self) -> bool:
        """Return True if the server has sent no further message up to now."""
        await self._client.fence()
        return self.came.empty()

    async def unsubscribe(self) -> None:
        self._client.send(f"UNSUB {self.sid}\r\n".encode())
        await self._client.fence()


class Client:
    """A connection to a server; connect() and open() make one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._subscriptions: dict[str, Subscription] = {}
        self._pongs: list[asyncio.Future[None]] = []
        self._sids = 0
        self.answers_pings = True
        self.pings = 0
        """PINGs of the server so far."""
        self._pinged = asyncio.Event()
        self.errors: list[bytes] = []
        """-ERRs so far."""
        self.closed = asyncio.Event()
        """The server has closed the connection."""
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, server: Server) -> Self:
        """Connect without sending anything."""
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    @classmethod
    async def connect(cls, server: Server, **options: Any) -> Self:
        client = await cls.open(server)
        try:
            client.send(connect_op(headers=True, no_responders=True, **options))
            await client.fence()
        except BaseException:
            await client.close()
            raise
        return client

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await self._writer.wait_closed()

    def pause(self) -> None:
        """Stop reading; later bytes stay in the kernel."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.pause_reading()

    def go_on(self) -> None:
        """Read again."""
        transport = self._writer.transport
        assert isinstance(transport, asyncio.ReadTransport)
        transport.resume_reading()

    # -- sending ---------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    async def fence(self) -> None:
        """Return when the server has handled everything sent, and its output has arrived."""
        answered = asyncio.get_running_loop().create_future()
        self._pongs.append(answered)
        self.send(PING)
        async with asyncio.timeout(TIMEOUT):
            await answered

    def publish(self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> None:
        self.send(publish_op(subject, payload, reply, header))

    async def subscribe(self, subject: str) -> Subscription:
        self._sids += 1
        sid = str(self._sids)
        subscription = self._subscriptions[sid] = Subscription(self, sid)
        self.send(f"SUB {subject} {sid}\r\n".encode())
        await self.fence()
        return subscription

    async def ask(self, subject: str, payload: bytes = b"", header: bytes = b"") -> Subscription:
        """Send a request; return the subscription to its answers."""
        self._sids += 1
        inbox = f"_INBOX.clock.{id(self):x}.{self._sids}"
        answers = await self.subscribe(inbox)
        self.publish(subject, payload, inbox, header)
        await self.fence()
        return answers

    async def request(self, subject: str, payload: bytes = b"", header: bytes = b"") -> Message:
        return await (await self.ask(subject, payload, header)).next()

    async def pinged(self, times: int) -> None:
        """Return when `times` PINGs have come."""
        async with asyncio.timeout(TIMEOUT):
            while self.pings < times:
                self._pinged.clear()
                await self._pinged.wait()

    # -- JetStream -------------------------------------------------------------------------------------------

    async def api(self, verb: str, body: object = None, *, error: bool = False) -> Any:
        """Return the API's answer, which must be an error if `error`, and no error otherwise."""
        payload = b"" if body is None else json.dumps(body).encode()
        answer = (await self.request(f"$JS.API.{verb}", payload)).json
        assert ("error" in answer) is error, (verb, body, answer)
        return answer

    async def stream(self, name: str, **config: Any) -> Any:
        body = {"name": name, "subjects": [f"{name}.>"], "storage": "memory"} | config
        return await self.api(f"STREAM.CREATE.{name}", body)

    async def consumer(self, stream: str, name: str, **config: Any) -> Any:
        body = {"stream_name": stream, "config": {"name": name, "ack_policy": "explicit"} | config}
        return await self.api(f"CONSUMER.CREATE.{stream}.{name}", body)

    async def store(self, subject: str, *lines: str, payload: bytes = b"x") -> dict[str, Any]:
        """Store a message with these header lines; return the acknowledgement."""
        answer = (await self.request(subject, payload, header(*lines) if lines else b"")).json
        assert "error" not in answer, (subject, lines, answer)
        return dict(answer)

    async def pull(self, stream: str, consumer: str, **request: Any) -> Subscription:
        """Send a pull request with these members (durations in ns); return the subscription to its inbox."""
        return await self.ask(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(request).encode())

    # -- receiving -------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        buffer = bytearray()
        try:
            while data := await self._reader.read(1 << 16):
                buffer += data
                while (end := next_op(buffer)) > 0:
                    op = bytes(buffer[:end])
                    del buffer[:end]
                    self._take(op)
        except ConnectionError:
            pass
        finally:
            self.closed.set()
            for pong in self._pongs:
                if not pong.done():
                    pong.set_exception(ConnectionError(f"closed by the server: {self.errors}"))

    def _take(self, op: bytes) -> None:
        if b"MSG " in op[:5]:
            message = parse(op)
            self._subscriptions[message.sid].came.put_nowait(message)
        elif op == PING:
            self.pings += 1
            self._pinged.set()
            if self.answers_pings:
                self.send(PONG)
        elif op == PONG:
            self._pongs.pop(0).set_result(None)
        elif op.startswith(b"-ERR"):
            self.errors.append(op)


def header(*lines: str) -> bytes:
    return b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"
