"""A data plane without a server whose pollers run in threads, and blocking peers for it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from gnats.core.runtime.inbox import EV_BEGUN, EV_CLOSED

from .dataplane import DataPlane, Peer, Posted, Session
from .linkpeer import next_op

TIMEOUT = 60.0
PING, PONG = b"PING\r\n", b"PONG\r\n"
DRAIN_EVERY = 0.002


class RunningPlane(DataPlane):
    """A data plane whose pollers run until it is left.

    `control` stands for the control loop: hold it to make connections and accounts, and to change them.
    `posted` are the events but those of beginnings and ends.
    """

    def __init__(self, pollers: int) -> None:
        super().__init__(pollers)
        self.control = threading.RLock()
        self.posted: list[Posted] = []
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=poller.run) for poller in self.pollers]
        self._drainer = threading.Thread(target=self._drain)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self._drainer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in self.sockets:
            sock.close()
        self._ending.set()
        self._drainer.join()
        for poller, thread in zip(self.pollers, self._threads, strict=True):
            poller.stop()
            thread.join()
            poller.close()
        if exc is None:
            assert not self.open

    def _drain(self) -> None:
        """Take events; at the end, until all connections have ended."""
        rounds_left = int(TIMEOUT / DRAIN_EVERY)
        while rounds_left and not (self._ending.wait(DRAIN_EVERY) and not self.open):
            rounds_left -= self._ending.is_set()
            with self.control:
                for event in self.inbox.drain():
                    if event[0] == EV_CLOSED and event[1] is not None:
                        self.open.discard(event[1].cid)
                    elif event[0] != EV_BEGUN:
                        self.posted.append(event)

    def run(self) -> None:
        """Do nothing: the pollers run."""


class Wire:
    """The blocking end of a connection to a running plane; close() it, or leave it as a context manager."""

    def __init__(self, peer: Peer) -> None:
        self.session: Session = peer.session
        self.sock = peer.socket
        self.sock.settimeout(TIMEOUT)
        self._data = bytearray()
        self._at = 0

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def op(self) -> bytes:
        """Return the next operation, with its payload. Raises EOFError at the end of the connection."""
        while (n := next_op(self._data)) < 0:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError(bytes(self._data[-200:]))
            self._data += data
        found = bytes(self._data[:n])
        del self._data[:n]
        return found

    def until(self, verb: bytes) -> bytes:
        """Return the next operation that begins with these bytes; drop those before it."""
        while not (op := self.op()).startswith(verb):
            pass
        return op

    def fence(self) -> None:
        """Return when what has been sent so far has been handled; drop what comes before."""
        self.send(PING)
        self.until(PONG)

    def close(self) -> None:
        """End the connection; a thread that reads from it gets EOFError."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.sock.close()
