"""Connections of a server that is not there: what those of routes, leaf nodes and gateways have in common.

`LinkPeer` reads and writes operations, `LinkListener` is what a server's configuration names.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from .s2stream import S2Stream
from .servers import TIMEOUT, Server
from .wire import CRLF, PING, PONG, Closed, parse_info

_MESSAGE = re.compile(rb"[RHL]?MSG [^\r\n]* (\d+)\r\n")

Wanted = bytes | re.Pattern[bytes] | Callable[[bytes], bool]
"""An operation to wait for: its beginning, a pattern to search for, or a function that recognises it."""


def next_op(data: bytes | bytearray) -> int:
    """Return the offset behind the operation at the beginning, or -1 when it is incomplete."""
    end = data.find(CRLF)
    if end < 0:
        return -1
    end += 2
    if message := _MESSAGE.match(data):
        end += int(message[1]) + 2
    return end if end <= len(data) else -1


def encode(verb: str, members: dict[str, Any]) -> bytes:
    """Encode a verb with a JSON document; members that are None are left out."""
    kept = {key: value for key, value in members.items() if value is not None}
    return f"{verb} {json.dumps(kept, separators=(',', ':'))}\r\n".encode()


class LinkPeer:
    """One connection. It answers PINGs while it reads; a read ends with TimeoutError after TIMEOUT.

    `info` is the first INFO of the other side and `connect` its CONNECT, if they were read. `opening` is what
    came during the handshake, `seen` every operation so far. `s2` is its compression, once that has begun.
    """

    tag = ""
    """What stands before the connection's number in the log."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.seen: list[bytes] = []
        self.info: dict[str, Any] = {}
        self.connect: dict[str, Any] = {}
        self.opening: list[bytes] = []
        self.answers_pings = True
        self.s2: S2Stream | None = None
        self._data = bytearray()
        host, port = sock.getsockname()[:2]
        self.local = f"{host}:{port}"  # as the other side writes it in its log
        sock.settimeout(TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def logged(self, server: Server) -> list[str]:
        """Return the server's log lines about this connection, such as "INF Route connection created"."""
        about = rf"^.*\[(\w+)\] {re.escape(self.local)} - {self.tag}:\d+ - (.*)$"
        return [f"{level} {text}" for level, text in re.findall(about, server.log, re.MULTILINE)]

    def wait_logged(self, server: Server, line: str, *, begins: bool = False) -> None:
        """Wait until the server has logged a line about this connection, written as `logged` writes it.

        With `begins`, `line` is only the line's beginning.
        """
        level, _, text = line.partition(" ")
        end = "" if begins else r"\n"
        server.wait_log(rf"\[{level}\] {re.escape(self.local)} - {self.tag}:\d+ - {re.escape(text)}{end}")

    def send(self, data: bytes) -> None:
        """Send bytes; drop them when the other side has closed. What it sent before can still be read."""
        self.send_raw(self.s2.encode(data) if self.s2 else data)

    def send_raw(self, data: bytes) -> None:
        """Send bytes as they are, whether the peer compresses or not."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)

    def compress(self) -> None:
        """Write and read S2 from now on, and decode what has been read and not taken."""
        self.s2 = S2Stream()
        self._data = bytearray(self.s2.decode(bytes(self._data)))

    def _fill(self) -> bool:
        try:
            chunk = self.sock.recv(1 << 20)
        except ConnectionResetError:
            return False
        except TimeoutError:
            raise TimeoutError(f"nothing came; before: {self.seen[-10:]}") from None
        self._data += self.s2.decode(chunk) if self.s2 else chunk
        return bool(chunk)

    def read_op(self) -> bytes:
        """Return the next operation, PINGs among them. Raises Closed when the connection ends first."""
        while (end := next_op(self._data)) < 0:
            if not self._fill():
                rest = bytes(self._data)
                self._data.clear()
                raise Closed(rest)
        op = bytes(self._data[:end])
        del self._data[:end]
        self.seen.append(op)
        if op == PING and self.answers_pings:
            self.send(PONG)
        return op

    def until(self, wanted: Wanted) -> list[bytes]:
        """Return the operations up to and including the wanted one, without PINGs.

        Raises Closed, whose argument is everything read, and TimeoutError when it does not come in time.
        """
        if isinstance(wanted, bytes):
            found: Callable[[bytes], bool] = lambda op: op.startswith(wanted)  # noqa: E731
        elif isinstance(wanted, re.Pattern):
            found = lambda op: bool(wanted.search(op))  # noqa: E731
        else:
            found = wanted
        ops: list[bytes] = []
        limit = time.monotonic() + TIMEOUT
        while not ops or not found(ops[-1]):
            if time.monotonic() > limit:
                raise TimeoutError(f"{wanted!r} did not come; the last ones: {ops[-10:]}")
            try:
                op = self.read_op()
            except Closed as closed:
                raise Closed(b"".join(ops) + closed.args[0]) from None
            if op != PING or wanted == PING:
                ops.append(op)
        return ops

    def await_op(self, wanted: Wanted) -> bytes:
        """Return the wanted operation; drop those before it."""
        return self.until(wanted)[-1]

    def fence(self) -> list[bytes]:
        """Send a PING; return the operations before its PONG: the other side has read all that we sent.

        Interest and messages of clients may still be on their way: see `after`.
        """
        self.send(PING)
        return self.until(PONG)[:-1]

    def rest(self) -> list[bytes]:
        """Return the operations up to the end of the connection, without PINGs. Send nothing."""
        ops: list[bytes] = []
        self.answers_pings = False
        while True:
            try:
                op = self.read_op()
            except Closed as closed:
                return [*ops, closed.args[0]] if closed.args[0] else ops
            if op != PING:
                ops.append(op)

    def take_info(self) -> dict[str, Any]:
        """Read the first INFO of the other side, which is also its first operation, into `info`."""
        self.info = parse_info(self.read_op())
        return self.info

    def take_connect(self) -> dict[str, Any]:
        """Read the CONNECT of the other side, which is its first operation, into `connect`."""
        op = self.read_op()
        assert op.startswith(b"CONNECT {"), op
        self.connect = json.loads(op[8:])
        return self.connect

    def close(self) -> None:
        self.sock.close()


class LinkListener:
    """A socket on loopback that servers dial, on a random port unless one is given."""

    scheme = "nats"
    """That of the URL by which servers dial it."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(TIMEOUT)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"{self.scheme}://{self.address}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def take_socket(self) -> socket.socket:
        """Take the next connection as it is. Raises TimeoutError when nobody dials."""
        sock = self._listener.accept()[0]
        sock.settimeout(TIMEOUT)
        return sock

    def pending(self) -> bool:
        """Say whether a connection waits to be taken."""
        self._listener.setblocking(False)
        try:
            self._listener.accept()[0].close()
        except BlockingIOError:
            return False
        finally:
            self._listener.settimeout(TIMEOUT)
        return True

    def close(self) -> None:
        self._listener.close()
