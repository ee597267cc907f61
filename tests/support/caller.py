"""A client that logs in, sends requests, and gives messages as objects."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from .wire import Connection, connect_op, publish_op

INBOX = "_INBOX.caller"


@dataclass(frozen=True)
class Message:
    """A delivered message; `header` is the whole header block, empty for a MSG."""

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
        """The text behind "NATS/1.0" in the header's first line, such as "408 Request Timeout"."""
        return self.header.partition(b"\r\n")[0].decode().removeprefix("NATS/1.0").strip()

    @property
    def headers(self) -> dict[str, str]:
        """The header's other lines."""
        lines = (line.partition(":") for line in self.header.decode().split("\r\n")[1:] if line)
        return {key: value.strip() for key, _, value in lines}

    @property
    def ack(self) -> tuple[int, int, int, int]:
        """(deliveries, stream sequence, consumer sequence, pending) from the reply subject."""
        words = self.reply.split(".")
        return int(words[-5]), int(words[-4]), int(words[-3]), int(words[-1])


def parse(op: bytes) -> Message:
    """Parse a MSG or HMSG operation. Raises ValueError for any other operation."""
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


class Address(NamedTuple):
    """Where a server listens that has no `address` of its own."""

    address: tuple[str, int]


class Caller:
    """A client connection with headers and protocol 1, not verbose.

    Answers come to subjects below `inbox`; callers that are connected at the same time need different ones.
    A caller with a user name sends `password`; `connect` are further members of CONNECT.
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
        """Wait for the answer to a PING; return the operations before it, and keep messages for next()."""
        return [op for op in self.connection.fence() if not self._keep(op)]

    def _keep(self, op: bytes) -> bool:
        if not op.startswith((b"MSG ", b"HMSG ")):
            return False
        self._waiting.append(parse(op))
        return True

    def subscribe(self, subject: str, queue: str = "") -> str:
        """Subscribe, wait until the server knows, and return the sid."""
        self._sids += 1
        sid = f"{self._sids}"
        self.send(f"SUB {subject} {queue} {sid}\r\n".encode())
        self.fence()
        return sid

    def publish(self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> None:
        self.send(publish_op(subject, payload, reply, header))

    def next(self) -> Message:
        """Return the next message; drop other operations before it."""
        while not self._waiting:
            self._keep(self.connection.read_op())
        return self._waiting.pop(0)

    def kept(self) -> list[Message]:
        """Return the messages received and not yet returned by next()."""
        return list(self._waiting)

    def next_on(self, subject: str) -> Message:
        """Return the next message on a subject; keep the others for next()."""
        skipped: list[Message] = []
        while (message := self.next()).subject != subject:
            skipped.append(message)
        self._waiting[:0] = skipped
        return message

    def ask(self, subject: str, payload: bytes = b"", header: bytes = b"") -> str:
        """Send a request; return the subject that its answer will come on."""
        self._requests += 1
        inbox = f"{self._inbox}.{self._requests}"
        self.publish(subject, payload, inbox, header)
        return inbox

    def request(self, subject: str, body: object = None, header: bytes = b"") -> Message:
        """Send a request and return the answer. `body` is sent as JSON; bytes are sent as they are."""
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.next_on(self.ask(subject, payload, header))

    def unanswered(self, subject: str, body: object, marker: str, header: bytes = b"") -> bool:
        """Send a request, then one to the subject `marker`; return True if only the second has an answer.

        The server must handle the two in order.
        """
        inbox = self.ask(subject, body if isinstance(body, bytes) else json.dumps(body).encode(), header)
        self.request(marker)
        return not any(message.subject == inbox for message in self._waiting)
