"""Clients that send many requests, each with a new inbox, and clients that answer them."""

from __future__ import annotations

from contextlib import suppress

from support.servers import Server
from support.wire import PING, PONG, Closed, Connection, connect_op

from .members import PASSWORD

WINDOW = 40
"""Requests of one client that wait for answers at a time."""


class Responder:
    """Answers each request at a server; `run` ends when the connection is ended."""

    def __init__(self, server: Server, user: str, subject: bytes, queue: bytes) -> None:
        self.connection = Connection(server.address)
        self.connection.send(connect_op(user, PASSWORD, headers=True) + b"SUB %b %b 1\r\n" % (subject, queue))
        self.connection.fence()
        self.answered = 0

    def run(self) -> None:
        with suppress(Closed):
            while True:
                op = self.connection.read_op()
                if op.startswith((b"MSG ", b"HMSG ")):
                    words, _, body = op.partition(b"\r\n")
                    payload = body[:-2].rpartition(b"\r\n")[2]
                    self.connection.send(
                        b"PUB %b %d\r\n%b\r\n" % (words.split(b" ")[3], len(payload), payload)
                    )
                    self.answered += 1


class Requester:
    """Sends requests, each with an inbox of its own that it subscribes to in the same write."""

    def __init__(self, server: Server, user: str, name: int) -> None:
        self.connection = Connection(server.address)
        self.connection.send(connect_op(user, PASSWORD, headers=True, no_responders=True))
        self.connection.fence()
        self.name = name
        self.sent = 0

    def run(self, subject: bytes, count: int) -> None:
        """Send `count` requests. Raises TimeoutError when answers fail to come."""
        waiting: set[bytes] = set()
        sent = 0
        while sent < count or waiting:
            burst = b""
            while sent < count and len(waiting) < WINDOW:
                inbox = b"_INBOX.%d.%d" % (self.name, sent)
                burst += b"SUB %b %d\r\n" % (inbox, sent + 1)
                burst += b"UNSUB %d 1\r\nPUB %b %b %d\r\n%b\r\n" % (
                    sent + 1,
                    subject,
                    inbox,
                    len(inbox),
                    inbox,
                )
                waiting.add(inbox)
                sent += 1
            if burst:
                self.connection.send(burst)
            try:
                op = self.connection.read_op()
            except TimeoutError:
                raise TimeoutError(f"requester {self.name} waits for {sorted(waiting)}") from None
            if op.startswith((b"MSG ", b"HMSG ")):
                inbox = op.split(b" ", 2)[1]
                assert op.endswith(b"\r\n%b\r\n" % inbox), op
                waiting.remove(inbox)
            else:
                assert op in (PING, PONG) or op.startswith(b"INFO "), op
