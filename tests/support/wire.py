"""The client's side of the protocol: split a server's bytes into operations; a raw connection."""

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
    """Return the offset behind the operation that begins at `start`, or -1 when it is incomplete."""
    end = data.find(CRLF, start)
    if end < 0:
        return -1
    end += 2
    if message := _MESSAGE.match(data, start):
        end += int(message[1]) + 2
    return end if end <= len(data) else -1


def split_ops(data: bytes) -> list[bytes]:
    """Return the operations in `data`, each with its line end; an incomplete rest comes last as it is."""
    ops, start = [], 0
    while start < len(data):
        end = next_op(data, start)
        if end < 0:
            end = len(data)
        ops.append(data[start:end])
        start = end
    return ops


def connect_op(user: str = "", password: str = "", **options: object) -> bytes:
    """Encode CONNECT with these members, user and pass if not empty; verbose is False unless given."""
    login = {name: text for name, text in (("user", user), ("pass", password)) if text}
    return f"CONNECT {json.dumps({'verbose': False} | options | login)}\r\n".encode()


def header(*lines: str) -> bytes:
    """Encode a header block of these lines."""
    return b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"


def publish_op(subject: str, payload: bytes = b"", reply: str = "", header: bytes = b"") -> bytes:
    """Encode PUB or, with a header block, HPUB. An empty reply leaves two blanks."""
    size = f"{len(header)} {len(header) + len(payload)}" if header else f"{len(payload)}"
    line = f"{'HPUB' if header else 'PUB'} {subject} {reply} {size}\r\n"
    return line.encode() + header + payload + b"\r\n"


class Closed(Exception):
    """The server closed the connection; `args[0]` is the bytes read and not returned before."""


class Connection:
    """A raw connection that has read INFO. A read raises TimeoutError after TIMEOUT seconds of silence.

    It answers the server's PINGs: the first comes about two seconds after CONNECT, in the middle of a slow
    test. With `pings` it returns them like other operations, and answers none.
    """

    def __init__(self, address: tuple[str, int], source: str = "127.0.0.1", *, pings: bool = False) -> None:
        """Connect from the address `source` and read INFO. Raises OSError, or Closed when none comes."""
        self._pings = pings
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
        """Send `data`; return False when the server has closed. What it sent before can still be read."""
        self.sent += len(data)
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def end(self) -> None:
        """Shut down the writing side: the server reads the end of the input."""
        with suppress(OSError):  # the server has closed already
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
        """Return the next operation. Raises Closed when the connection ends first."""
        while True:
            while (end := next_op(self._buffer)) < 0:
                if not self._fill():
                    raise Closed(self._take(len(self._buffer)))
            op = self._take(end)
            if self._pings or op != PING:
                return op
            self.send(PONG)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def read_until(self, last: bytes) -> list[bytes]:
        """Return the operations up to and including `last`. Raises Closed with everything read."""
        ops: list[bytes] = []
        while not ops or ops[-1] != last:
            try:
                ops.append(self.read_op())
            except Closed as closed:
                raise Closed(b"".join(ops) + closed.args[0]) from None
        return ops

    def rest(self) -> bytes:
        """Return everything up to the end of the connection."""
        while self._fill():
            pass
        return self._take(len(self._buffer))

    def fence(self) -> list[bytes]:
        """Send a PING; return the operations before its PONG: all that the server has sent up to now."""
        self.send(PING)
        return self.read_until(PONG)[:-1]

    def close(self) -> None:
        self.sock.close()


def parse_info(op: bytes) -> dict[str, Any]:
    """Parse the JSON of an INFO operation. Raises ValueError for another operation."""
    if not op.startswith(b"INFO {"):
        raise ValueError(f"not an INFO: {op!r}")
    info: dict[str, Any] = json.loads(op[5:])
    return info
