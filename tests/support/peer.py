"""A blocking raw connection, cheap enough for stress tests that run many in threads."""

import re
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from .wire import HELLO, PING, PONG

_PING_LINE = re.compile(rb"(?:\A|(?<=\r\n))PING\r\n")


class Peer:
    """A connection to a server on 127.0.0.1, over TLS with `tls`, that has sent `hello` and read a PONG.

    A read raises TimeoutError after 30 s of silence, EOFError (the last bytes) when the server closes.
    until() and fence() drop the server's PINGs: the first comes about two seconds after CONNECT. They do not
    answer it, because another thread may be sending; the server waits for minutes.
    """

    def __init__(self, port: int, hello: bytes = HELLO, tls: ssl.SSLContext | None = None) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = bytearray()
        try:
            if tls:
                self.until(b"\r\n")  # INFO
                self.sock = tls.wrap_socket(self.sock, server_hostname="localhost")
            self.send(hello + PING)
            self.until(PONG)
        except BaseException:
            self.close()
            raise

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def until(self, end: bytes) -> bytes:
        """Return everything up to and including `end`."""
        head = bytearray()
        while not head.endswith(end):
            looked = 0
            while (found := self.data.find(end, looked)) < 0:
                looked = max(len(self.data) - len(end) + 1, 0)
                self._fill()
            part = self._take(found + len(end))
            head += _PING_LINE.sub(b"", part) if PING in part else part
        return bytes(head)

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes, PINGs among them."""
        while len(self.data) < count:
            self._fill()
        return self._take(count)

    def _fill(self) -> None:
        got = self.sock.recv(1 << 20)
        if not got:
            raise EOFError(bytes(self.data[-200:]))
        self.data += got

    def _take(self, count: int) -> bytes:
        taken = bytes(self.data[:count])
        del self.data[:count]
        return taken

    def fence(self) -> bytes:
        """Send a PING; return everything up to and including its PONG."""
        self.send(PING)
        return self.until(PONG)

    def reset(self) -> None:
        """Close the connection with a TCP reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@contextmanager
def several(count: int, port: int, hello: bytes = HELLO) -> Iterator[list[Peer]]:
    """Connect that many peers, and close them at the end; also those before one that cannot connect."""
    with ExitStack() as stack:
        yield [stack.enter_context(Peer(port, hello)) for _ in range(count)]
