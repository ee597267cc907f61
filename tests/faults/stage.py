"""Connections to a server, one of whose allocations fails. Each call ends with an answer or a report.

A report is a line in the server's log at level WRN or ERR, or one about memory.
"""

from __future__ import annotations

import json
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from support.caller import Message, parse
from support.failing_server import Call, Failing
from support.reload import FAILED, attempt
from support.servers import Server
from support.wire import PING, PONG, connect_op, next_op, publish_op

LIMIT = 20.0
"""Seconds in which the server must answer, or log why it does not."""
SLICE = 0.01
DEFAULTS = {"allow_direct": True}
KEPT = 3
"""Number of streams that stay after their round, so that a test can check them after a restart."""
REPORT = re.compile(r"\[(ERR|WRN)\]|memory")
ERRORS = re.compile(rb'"error":\{|NATS/1.0 [45]')


class Silent(AssertionError):
    """The server gave neither an answer nor a report."""


class Stage:
    """A server, the places of its failed calls, and the messages that it acknowledged."""

    def __init__(
        self, server: Server, failing: Failing, config: str = "", context: ssl.SSLContext | None = None
    ) -> None:
        """`config` is the server's configuration, for reload(); `context` is for securely()."""
        self.server = server
        self.config = config
        self.context = context
        self.calls: list[str] = []
        """The places of failed calls, in the form of failing_server.c."""
        self.acked: dict[str, dict[int, tuple[str, bytes]]] = {}
        """Subject and payload of each acknowledged message, by stream and sequence."""
        self.number = 0
        self._must_answer = True
        self._failing = failing
        self._log = 0
        self._peers = ExitStack()

    @property
    def name(self) -> str:
        """The prefix of this round's streams and subjects."""
        return f"N{self.number:04}"

    def play(self, scene: Callable[[Stage], None], rounds: int = 1000) -> None:
        """Play a scene until each of its allocations has failed, one a round."""
        for _ in range(rounds):
            self.number += 1
            self._log = self.server.lines
            self._must_answer = False
            self._failing.fail_next(Call.MEMORY)
            try:
                with self._peers:
                    scene(self)
            except Silent as silent:
                raise Silent(f"{scene.__name__}: {silent}, {self._failing.stop()}\n{self.tail}") from None
            except Exception as exc:
                exc.add_note(f"{scene.__name__}, {self._failing.stop()}\n{self.tail}")
                raise
            where = self._failing.stop()
            if where:
                self.calls.append(where)
            self._check(where)
            if not where:
                return

    @property
    def tail(self) -> str:
        return self.server.log_from(self._log)[-3000:]

    @property
    def is_reported(self) -> bool:
        return not self._must_answer and REPORT.search(self.server.log_from(self._log)) is not None

    @property
    def lacks_memory(self) -> bool:
        """Whether the server reports that it had no memory; other errors do not count."""
        return not self._must_answer and "emory" in self.server.log_from(self._log)

    def _check(self, where: str) -> None:
        """Check that a new connection is served, and that every acknowledged message is there."""
        self._must_answer = True
        with self._peers:
            peer = self.peer()
            assert not peer.gone, where
            for stream, messages in list(self.acked.items()):
                if not stream.startswith(self.name):
                    continue
                requests = [(f"$JS.API.DIRECT.GET.{stream}", b'{"seq":%d}' % seq, b"") for seq in messages]
                for (seq, kept), found in zip(messages.items(), peer.ask_all(requests), strict=True):
                    assert found, (where, stream, seq)
                    assert found.headers.get("Nats-Subject") == kept[0], (where, stream, seq, found)
                if not stream.endswith("K") or len(self.acked) > KEPT:
                    peer.api(f"STREAM.DELETE.{stream}")
                    del self.acked[stream]

    def lost(self) -> list[tuple[str, int]]:
        """Return stream and sequence of each acknowledged message that is missing."""
        with self._peers:
            peer = self.peer()
            return [
                (stream, seq)
                for stream, messages in self.acked.items()
                for seq in messages
                if "message" not in peer.api(f"STREAM.MSG.GET.{stream}", seq=seq)
            ]

    def peer(self, user: str = "a", **options: object) -> Peer:
        return self._peers.enter_context(closing(Peer(self, user, options)))

    def reload(self, config: str) -> bool:
        """Reload the server's configuration; return whether the reload succeeded."""
        said = attempt(self.server, config)
        return not said or not said[-1].startswith(FAILED)

    def securely(self, context: ssl.SSLContext | None = None) -> Peer:
        """Connect over TLS."""
        return self._peers.enter_context(closing(Peer(self, "a", {}, context or self.context)))

    def stream(self, peer: Peer, name: str = "", **config: Any) -> str:
        """Create a stream of all subjects below its name (default: that of the round); return the name."""
        name = name or self.name
        made = peer.api(
            f"STREAM.CREATE.{name}", **DEFAULTS | {"name": name, "subjects": [f"{name}.>"]} | config
        )
        if "config" in made:
            self.acked.setdefault(name, {})
        return name


@contextmanager
def closing(peer: Peer) -> Iterator[Peer]:
    try:
        yield peer
    finally:
        peer.close()


class Peer:
    """A connection that the server may close at any time. Its methods then do nothing."""

    def __init__(
        self, stage: Stage, user: str, options: dict[str, object], context: ssl.SSLContext | None = None
    ) -> None:
        self.gone = False
        self.messages: list[Message] = []
        self._stage = stage
        self._buffer = bytearray()
        self._others: list[bytes] = []
        self._sids = 0
        self._asked = 0
        self._inbox = f"_INBOX.{user}.{id(self):x}"
        self._socket = socket.create_connection(stage.server.address, 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if context:
                self._secure(context)
            login = {"headers": True, "protocol": 1, "no_responders": True} | options
            self.send(connect_op(user, "p", **login))
            self.subscribe(f"{self._inbox}.*")
            self.fence()
        except BaseException:
            self.close()
            raise

    def _secure(self, context: ssl.SSLContext) -> None:
        """Read INFO, which the server sends in clear text, and shake hands."""
        try:
            while self._socket.recv(1) not in (b"\n", b""):
                pass
            self._socket = context.wrap_socket(self._socket, server_hostname="localhost")
        except OSError:
            self.gone = True

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError:
            self.gone = True

    def subscribe(self, subject: str, queue: str = "") -> int:
        self._sids += 1
        self.send(f"SUB {subject} {queue} {self._sids}\r\n".encode())
        return self._sids

    def publish(self, subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> None:
        self.send(publish_op(subject, payload, reply, header))

    def fence(self) -> bool:
        """Send a PING and wait for its PONG; return False when the connection is closed. Raises Silent."""
        before = self._others.count(PONG)
        self.send(PING)
        limit = time.monotonic() + LIMIT
        while not self.gone and self._others.count(PONG) == before:
            self._read(1)
            if time.monotonic() > limit:
                raise Silent("no PONG")
        return not self.gone

    def _read(self, seconds: float) -> bool:
        pending = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not pending and not select.select([self._socket], [], [], seconds)[0]:
            return False
        try:
            data = self._socket.recv(1 << 20)
        except OSError:
            data = b""
        self.gone |= not data
        self._buffer += data
        while (end := next_op(self._buffer)) >= 0:
            op = bytes(self._buffer[:end])
            del self._buffer[:end]
            if op.startswith((b"MSG ", b"HMSG ")):
                self.messages.append(parse(op))
            elif op == PING:
                self.send(PONG)
            else:
                self._others.append(op)
        return True

    def wait(self, done: Callable[[], bool]) -> bool:
        """Read until done() is true; return whether it became true. Raises Silent.

        It stays false when the connection is closed, or when the server reports that it cannot answer.
        """
        limit = time.monotonic() + LIMIT
        fences = 0
        while not done():
            if self.gone or fences == 2:
                return False
            if self._read(SLICE):
                continue
            if self._stage.is_reported:
                self.fence()
                fences += 1
            elif time.monotonic() > limit:
                raise Silent("no answer")
        return True

    def ask_all(self, requests: list[tuple[str, bytes, bytes]]) -> list[Message | None]:
        """Send requests (subject, payload, header) in one write; return an answer or None for each."""
        inboxes = []
        data = b""
        for subject, payload, header in requests:
            self._asked += 1
            inboxes.append(f"{self._inbox}.{self._asked}")
            data += publish_op(subject, payload, inboxes[-1], header)
        self.send(data)
        wanted = set(inboxes)
        self.wait(lambda: wanted <= {message.subject for message in self.messages})
        found = {message.subject: message for message in self.messages if message.subject in wanted}
        self.messages = [message for message in self.messages if message.subject not in wanted]
        return [found.get(inbox) for inbox in inboxes]

    def ask(self, subject: str, payload: bytes = b"", header: bytes = b"") -> Message | None:
        """Send a request; return its first answer, None without one."""
        return self.ask_all([(subject, payload, header)])[0]

    def api(self, subject: str, **body: Any) -> dict[str, Any]:
        """Send a request to the JetStream API; return its answer, {} without one."""
        found = self.ask(f"$JS.API.{subject}", json.dumps(body).encode() if body else b"")
        return found.json if found and found.payload else {}

    def take(self, count: int, subject: str = "") -> list[Message]:
        """Wait for `count` messages on subjects that begin with `subject`; return those that came."""

        def those() -> list[Message]:
            return [
                message for message in self.messages if not subject or message.subject.startswith(subject)
            ]

        self.wait(lambda: len(those()) >= count)
        found = those()
        self.messages = [message for message in self.messages if message not in found]
        return found

    def store(self, stream: str, messages: list[tuple[str, bytes, bytes]]) -> list[dict[str, Any]]:
        """Publish messages to a stream and note the acknowledged ones; return the answers, {} for none."""
        answers = self.ask_all(messages)
        found = []
        for (subject, payload, _), answer in zip(messages, answers, strict=True):
            body = answer.json if answer and answer.payload else {}
            found.append(body)
            if "seq" in body and "duplicate" not in body and "error" not in body:
                self._stage.acked.setdefault(stream, {})[body["seq"]] = subject, payload
        return found
