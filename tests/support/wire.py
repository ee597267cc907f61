"""The client's side of the wire: splitting what a server sends into operations, and a raw connection."""

from __future__ import annotations

import json
import re
import socket
from contextlib import suppress
from typing import Any

TIMEOUT = 30.0  # seconds without a byte from the server before a read fails
CRLF = b"\r\n"
PING = b"PING\r\n"
PONG = b"PONG\r\n"
HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
_MESSAGE = re.compile(rb"H?MSG [^\r\n]* (\d+)\r\n")


def next_op(data: bytes | bytearray, start: int = 0) -> int:
    """The offset behind the operation that begins at `start`, or -1 when it is not complete."""
    end = data.find(CRLF, start)
    if end < 0:
        return -1
    end += 2
    if message := _MESSAGE.match(data, start):
        end += int(message[1]) + 2
    return end if end <= len(data) else -1


def split_ops(data: bytes) -> list[bytes]:
    """Every operation in `data`, each with its line end; what is incomplete comes last as it is."""
    ops, start = [], 0
    while start < len(data):
        end = next_op(data, start)
        if end < 0:
            end = len(data)
        ops.append(data[start:end])
        start = end
    return ops


def connect_op(user: str = "", password: str = "", **options: object) -> bytes:
    """CONNECT with these options, and with user and password unless empty; not verbose unless asked for."""
    login = {name: text for name, text in (("user", user), ("pass", password)) if text}
    return f"CONNECT {json.dumps({'verbose': False} | options | login)}\r\n".encode()


def publish_op(subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> bytes:
    """PUB or, with a header's whole block, HPUB; the place of an empty reply stays empty."""
    size = f"{len(header)} {len(header) + len(payload)}" if header else f"{len(payload)}"
    line = f"{'HPUB' if header else 'PUB'} {subject} {reply} {size}\r\n"
    return line.encode() + header + payload + b"\r\n"


class Closed(Exception):
    """The server closed the connection; `args[0]` holds the bytes read before."""


class Connection:
    """A raw connection to a server, its INFO already read. A read fails after TIMEOUT seconds of silence."""

    def __init__(self, address: tuple[str, int], source: str = "127.0.0.1") -> None:
        """Connects from `source` and reads the greeting. Raises OSError, or Closed when none comes."""
        self.sock = socket.create_connection(address, TIMEOUT, source_address=(source, 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.local: tuple[str, int] = self.sock.getsockname()
        self.sent = 0  # bytes
        self._buffer = bytearray()
        try:
            self.greeting = self.read_op()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def info(self) -> dict[str, Any]:
        """The INFO that greeted this connection."""
        return parse_info(self.greeting)

    def send(self, data: bytes) -> bool:
        """Sends `data`; False when the server has closed: its last words can still be read."""
        self.sent += len(data)
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def end(self) -> None:
        """Says that nothing more will be sent."""
        with suppress(OSError):  # the server was first
            self.sock.shutdown(socket.SHUT_WR)

    def _fill(self) -> bool:
        try:
            chunk = self.sock.recv(1 << 20)
        except ConnectionResetError:
            return False
        except TimeoutError:
            raise TimeoutError(
                f"nothing came for {TIMEOUT:g} s after {bytes(self._buffer[-200:])!r}"
            ) from None
        self._buffer += chunk
        return bool(chunk)

    def read_op(self) -> bytes:
        """The next operation. Raises Closed when the connection ends first."""
        while (end := next_op(self._buffer)) < 0:
            if not self._fill():
                raise Closed(self._take(len(self._buffer)))
        return self._take(end)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def read_until(self, last: bytes) -> list[bytes]:
        """The operations up to and with `last`. Raises Closed with all that came when the end comes first."""
        ops: list[bytes] = []
        while not ops or ops[-1] != last:
            try:
                ops.append(self.read_op())
            except Closed as closed:
                raise Closed(b"".join(ops) + closed.args[0]) from None
        return ops

    def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        while self._fill():
            pass
        return self._take(len(self._buffer))

    def fence(self) -> list[bytes]:
        """What was sent before the answer to a PING: all that the server had to say up to now.

        PINGs of its own are answered and left out: on a slow machine they may come at any time.
        """
        self.send(PING)
        ops = self.read_until(PONG)[:-1]
        self.send(PONG * ops.count(PING))
        return [op for op in ops if op != PING]

    def close(self) -> None:
        self.sock.close()


def parse_info(op: bytes) -> dict[str, Any]:
    """The object inside an INFO operation. Raises ValueError when `op` is none."""
    if not op.startswith(b"INFO {"):
        raise ValueError(f"not an INFO: {op!r}")
    info: dict[str, Any] = json.loads(op[5:])
    return info
