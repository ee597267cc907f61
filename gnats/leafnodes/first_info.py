"""Read the first INFO of a server that was dialled, before a poller has the connection.

What follows may be in clear text, encrypted or compressed: that depends on this INFO.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from gnats.clock import Timer, call_later
from gnats.connection.closed_state import ClosedState

MOST = 1 << 20
"""Bytes of a line; INFO has about 500."""
MOST_LINES = 64
"""Lines that may come before INFO: more are no NATS server's."""
_CHUNK = 1 << 16


class FirstInfo:
    """Reads lines from a connected socket until stop() is called, and not a byte more.

    It reads one line whenever the loop comes around: a peer that sends without an end does not keep the loop
    from others. After MOST_LINES it fails.

    `take` gets each line without its end; `failed` gets the reason why no more come, after stop(). That
    detaches `sock`, whose descriptor stays open.
    """

    def __init__(
        self,
        sock: socket.socket,
        seconds: float,
        take: Callable[[bytes], object],
        failed: Callable[[ClosedState], object],
    ) -> None:
        self._sock = sock
        self._take = take
        self._failed = failed
        self._line = bytearray()
        self._lines = 0
        self._loop = asyncio.get_running_loop()
        self._timer: Timer | None = call_later(seconds, self._end, ClosedState.READ_ERROR)
        self._loop.add_reader(sock.fileno(), self._read)

    def stop(self) -> None:
        """Stop reading, and let go of the socket. Idempotent."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
            self._loop.remove_reader(self._sock.fileno())
            self._sock.detach()

    def send(self, data: bytes) -> None:
        """Send a short answer; what does not fit is dropped."""
        with suppress(OSError):  # _read() will notice
            self._sock.send(data)

    def _end(self, reason: ClosedState) -> None:
        self.stop()
        self._failed(reason)

    def _read(self) -> None:
        try:
            seen = self._sock.recv(_CHUNK, socket.MSG_PEEK)
            end = seen.find(b"\n") + 1
            self._line += self._sock.recv(end or len(seen)) if seen else b""
        except BlockingIOError:
            return
        except OSError:
            self._end(ClosedState.READ_ERROR)
            return
        self._lines += end > 0
        if not seen:
            self._end(ClosedState.CLIENT_CLOSED)
        elif len(self._line) > MOST:
            self._end(ClosedState.MAX_CONTROL_LINE_EXCEEDED)
        elif self._lines > MOST_LINES:
            self._end(ClosedState.PROTOCOL_VIOLATION)
        elif end:
            line = bytes(self._line).removesuffix(b"\n").removesuffix(b"\r")
            self._line.clear()
            self._take(line)
