"""A blocking raw connection, cheap enough for stress tests that run many in threads."""

import socket
import struct

from .wire import HELLO


class Peer:
    """A connection to a server on 127.0.0.1 that has sent `hello` and read the PONG after it.

    A read raises TimeoutError after 30 s of silence, EOFError (the last bytes) when the server closes.
    """

    def __init__(self, port: int, hello: bytes = HELLO) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), 30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        try:
            self.send(hello + b"PING\r\n")
            self.until(b"PONG\r\n")
        except BaseException:
            self.close()
            raise

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def until(self, end: bytes) -> bytes:
        """Return everything up to and including `end`."""
        while end not in self.data:
            got = self.sock.recv(1 << 16)
            if not got:
                raise EOFError(self.data[-200:])
            self.data += got
        head, _, self.data = self.data.partition(end)
        return head + end

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        while len(self.data) < count:
            got = self.sock.recv(1 << 20)
            if not got:
                raise EOFError(self.data[-200:])
            self.data += got
        head, self.data = self.data[:count], self.data[count:]
        return head

    def fence(self) -> bytes:
        """Send a PING; return everything up to and including its PONG."""
        self.send(b"PING\r\n")
        return self.until(b"PONG\r\n")

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
