"""Connections that never block: output waits until the server reads it, input is handled as it comes."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from collections.abc import Iterable

from support.wire import PING, PONG, next_op

READ = 1 << 18
KEPT = 64  # messages kept to acknowledge


class Wire:
    """A user's connection; answers come to subjects below `inbox`, with the sid 1."""

    def __init__(self, address: tuple[str, int], user: str, inbox: str) -> None:
        self.sock = socket.create_connection(address, 30)
        self.sock.setblocking(False)
        self.user = user
        self.inbox = inbox
        self.muted = self.closed = False
        self.pongs = self.pings = 0
        self.asked = self.answered = 0  # numbers of the last request, and of the last answered one
        self.to_ack: list[str] = []  # reply subjects of the last KEPT messages
        self._out = bytearray()
        self._in = bytearray()
        hello = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "user": user,
            "pass": "pw",
            "protocol": 1,
        }
        self.send(f"CONNECT {json.dumps(hello)}\r\nSUB {inbox}.* 1\r\n".encode())

    def send(self, data: bytes) -> None:
        if not self.closed:
            self._out += data

    def ping(self) -> None:
        self.pings += 1
        self.send(PING)

    def next_inbox(self) -> str:
        self.asked += 1
        return f"{self.inbox}.{self.asked}"

    @property
    def is_settled(self) -> bool:
        """Return True if everything is sent and answered, or the connection is closed or muted."""
        return self.closed or self.muted or (not self._out and self.pongs >= self.pings)

    @property
    def waits_to_send(self) -> int:
        return len(self._out)

    def end(self, *, reset: bool = False) -> None:
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.closed = True
        self.sock.close()

    def write(self) -> None:
        try:
            del self._out[: self.sock.send(memoryview(self._out)[:READ])]
        except BlockingIOError:
            pass
        except OSError:
            self.end()

    def read(self) -> int:
        """Read and handle what has come; return the number of bytes."""
        try:
            data = self.sock.recv(READ)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.end()
            return 0
        self._in += data
        start = 0
        while (end := next_op(self._in, start)) > 0:
            self.look_at(bytes(self._in[start:end]))
            start = end
        del self._in[:start]
        return len(data)

    def look_at(self, op: bytes) -> None:
        """Handle an operation."""
        if op == PING:
            self.send(PONG)
        elif op == PONG:
            self.pongs += 1
        elif op.startswith((b"MSG ", b"HMSG ")):
            words = op[: op.index(b"\r\n")].split(b" ")
            inbox, _, number = words[1].decode().rpartition(".")
            if inbox == self.inbox and number.isdigit():
                self.answered = max(self.answered, int(number))
            if len(words) > 3 and words[3].startswith(b"$JS.ACK."):
                self.to_ack.append(words[3].decode())
                del self.to_ack[:-KEPT]


def pump(wires: Iterable[Wire], seconds: float = 0.0) -> int:
    """Send and read what is possible, after waiting up to `seconds`; return the number of bytes moved."""
    live = [wire for wire in wires if not wire.closed]
    by_fd = {wire.sock.fileno(): wire for wire in live}
    poll = select.poll()
    for fd, wire in by_fd.items():
        events = (0 if wire.muted else select.POLLIN) | (select.POLLOUT if wire.waits_to_send else 0)
        if events:
            poll.register(fd, events)
    moved = 0
    for fd, events in poll.poll(seconds * 1000) if by_fd else ():
        wire = by_fd[fd]
        if events & select.POLLOUT:
            before = wire.waits_to_send
            wire.write()
            moved += before - wire.waits_to_send
        if not wire.closed and not wire.muted and events & (select.POLLIN | select.POLLHUP | select.POLLERR):
            moved += wire.read()
        elif wire.muted and events & (select.POLLHUP | select.POLLERR):
            wire.end()
    return moved


class Stalled(Exception):
    """A server reads nothing, or does not answer."""


def settle(wires: Iterable[Wire], patience: float) -> None:
    """Send a PING on every connection and wait for all answers.

    Raises Stalled when nothing moves for `patience` seconds.
    """
    wires = list(wires)
    for wire in wires:
        wire.ping()
    last = time.monotonic()
    while not all(wire.is_settled for wire in wires):
        if pump(wires, 0.2):
            last = time.monotonic()
        elif time.monotonic() - last > patience:
            waiting = [
                f"{wire.user}: {wire.waits_to_send} bytes unsent" for wire in wires if not wire.is_settled
            ]
            raise Stalled(f"no answer to a PING for {patience:.0f} s ({', '.join(waiting)})")
