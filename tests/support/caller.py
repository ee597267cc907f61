"""A client that is logged in and asks: requests, and messages as objects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from .wire import Connection, connect_op, publish_op

INBOX = "_INBOX.caller"


@dataclass(frozen=True)
class Message:
    """A message as it was delivered; `header` is its whole block."""

    subject: str
    sid: str
    reply: str
    header: bytes
    payload: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.payload)

    @property
    def status(self) -> str:
        """The header's first line behind "NATS/1.0": of a message that is nothing but a status."""
        return self.header.partition(b"\r\n")[0].decode().removeprefix("NATS/1.0").strip()

    @property
    def headers(self) -> dict[str, str]:
        """The header's other lines."""
        lines = (line.partition(":") for line in self.header.decode().split("\r\n")[1:] if line)
        return {key: value.strip() for key, _, value in lines}

    @property
    def ack(self) -> tuple[int, int, int, int]:
        """(deliveries, stream sequence, consumer sequence, pending) of its reply subject."""
        words = self.reply.split(".")
        return int(words[-5]), int(words[-4]), int(words[-3]), int(words[-1])


def parse(op: bytes) -> Message:
    """The message in a MSG or HMSG operation. Raises ValueError when `op` is another one."""
    line, _, body = op.partition(b"\r\n")
    verb, *args = line.decode().split(" ")
    if verb not in ("MSG", "HMSG"):
        raise ValueError(f"no message: {op!r}")
    header = int(args.pop(-2)) if verb == "HMSG" else 0
    subject, sid, *reply = args[:-1]
    return Message(subject, sid, " ".join(reply), body[:header], body[header:-2])


class Listening(Protocol):
    """A server that can be connected to."""

    @property
    def address(self) -> tuple[str, int]: ...


class Caller:
    """A connection of a user, with headers and without echo of commands; it is one of protocol 1.

    Answers come to `inbox`, which those that ask at the same time may not share.
    """

    def __init__(
        self, server: Listening, user: str = "", password: str = "pw", inbox: str = INBOX, **connect: object
    ) -> None:
        self.connection = Connection(server.address)
        options: dict[str, object] = {"pedantic": False, "headers": True, "protocol": 1, "lang": "py<&>"}
        self._sids = 0
        self._waiting: list[Message] = []
        self._inbox = inbox
        self._requests = 0
        try:
            self.send(connect_op(user, password if user else "", **options | connect))
            self.fence()
            self.subscribe(f"{inbox}.*")
        except BaseException:
            self.connection.close()
            raise

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @property
    def cid(self) -> int:
        cid: int = self.connection.info["client_id"]
        return cid

    def send(self, data: bytes) -> None:
        self.connection.send(data)

    def fence(self) -> list[bytes]:
        """Wait for the answer to a PING: what came before it but messages, which are kept for next()."""
        return [op for op in self.connection.fence() if not self._keep(op)]

    def _keep(self, op: bytes) -> bool:
        if not op.startswith((b"MSG ", b"HMSG ")):
            return False
        self._waiting.append(parse(op))
        return True

    def subscribe(self, subject: str, queue: str = "") -> str:
        """Listen, from now on; returns the sid."""
        self._sids += 1
        sid = f"{self._sids}"
        self.send(f"SUB {subject} {queue} {sid}\r\n".encode())
        self.fence()
        return sid

    def publish(self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> None:
        self.send(publish_op(subject, payload, reply, header))

    def next(self) -> Message:
        """The next message. Operations before it are dropped."""
        while not self._waiting:
            self._keep(self.connection.read_op())
        return self._waiting.pop(0)

    def kept(self) -> list[Message]:
        """The messages that have come and that nobody has asked for."""
        return list(self._waiting)

    def next_on(self, subject: str) -> Message:
        """The next message on a subject; others stay."""
        skipped: list[Message] = []
        while (message := self.next()).subject != subject:
            skipped.append(message)
        self._waiting[:0] = skipped
        return message

    def ask(self, subject: str, payload: bytes = b"", header: bytes = b"") -> str:
        """Send a request; returns the subject of the answer."""
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        self.publish(subject, payload, inbox, header)
        return inbox

    def request(self, subject: str, body: object = None, header: bytes = b"") -> Message:
        """The answer to a request; `body` is sent as JSON, or as it is when it is bytes."""
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.next_on(self.ask(subject, payload, header))

    def unanswered(self, subject: str, body: object, marker: str, header: bytes = b"") -> bool:
        """Whether a request gets no answer before one to `marker`, which is answered after it."""
        inbox = self.ask(subject, body if isinstance(body, bytes) else json.dumps(body).encode(), header)
        self.request(marker)
        return not any(message.subject == inbox for message in self._waiting)
