"""Listening and accepting (AcceptLoop, acceptConnections and acceptError in server.go)."""

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any

from gnats.clock import Timer, call_later
from gnats.errors import ServerError
from gnats.go.text import join_host_port, os_error
from gnats.log.logger import Logger

ACCEPT_MIN_SLEEP = 0.01
ACCEPT_MAX_SLEEP = 1.0
BACKLOG = 65535
"""Connections that may wait to be accepted; the kernel caps this at net.core.somaxconn."""
BATCH = 64
"""Connections accepted in one go; then the loop handles other events."""
UNSPECIFIED = ("0.0.0.0", "::")
"""Each means all addresses of the machine, IPv4 and IPv6, as in Go."""


async def listen(host: str, port: int) -> socket.socket:
    """Return a listening, non-blocking socket on host:port; port 0 chooses a free port. Raises OSError."""
    if host in UNSPECIFIED:
        try:
            return _bound(socket.AF_INET6, ("::", port))
        except OSError as exc:
            if exc.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise  # else this machine has no IPv6
    # Most hosts are numeric: no need for the loop's resolver and its thread. As bytes, no IDNA tables either.
    name = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return _bound(family, address)


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


async def listen_for_clients(host: str, port: int) -> socket.socket:
    """Like listen(), but raises ServerError with nats-server's text."""
    try:
        return await listen(host, port)
    except OSError as exc:
        where, reason = join_host_port(host, port), _reason(exc, host, port)
        raise ServerError(f'Error listening on port: {where}, "{reason}"') from None


async def listen_for_servers(what: str, host: str, port: int) -> socket.socket:
    """Like listen(), but raises ServerError with nats-server's text. `what`: router, leafnode or gateway."""
    try:
        return await listen(host, port)
    except OSError as exc:
        raise ServerError(f"Error listening on {what} port: {port} - {_reason(exc, host, port)}") from None


def _reason(exc: OSError, host: str, port: int) -> str:
    if isinstance(exc, socket.gaierror):
        return f"listen tcp: lookup {host}: {os_error(exc)}"
    return f"listen tcp {join_host_port(host, port)}: bind: {os_error(exc)}"


class AcceptLoop:
    """Owns a listening socket, accepts connections, and calls `create(socket, host, port)` for each.

    When the process or the system is out of descriptors or memory, it waits (10 ms at first, 1 s at most) and
    tries again. Meanwhile, connections wait in the kernel's queue.
    """

    def __init__(
        self, sock: socket.socket, name: str, create: Callable[[socket.socket, str, int], None], log: Logger
    ) -> None:
        self.sock = sock
        self.host, self.port = sock.getsockname()[:2]
        self._name = name
        self._create = create
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._delay = ACCEPT_MIN_SLEEP
        self._timer: Timer | None = None
        self._resume()

    def _resume(self) -> None:
        self._timer = None
        self._loop.add_reader(self.sock.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(BATCH):
            try:
                conn, address = self.sock.accept()
            except BlockingIOError:
                return
            except (InterruptedError, ConnectionAbortedError):  # the peer has already left
                continue
            except OSError as exc:
                self._back_off(exc)
                return
            self._delay = ACCEPT_MIN_SLEEP
            try:
                conn.setblocking(False)
                conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:  # reset by the peer meanwhile
                conn.close()
                continue
            self._create(conn, address[0], address[1])

    def _back_off(self, exc: OSError) -> None:
        """Stop accepting for a while, twice as long at each failure in a row."""
        reason = f"accept tcp {join_host_port(self.host, self.port)}: accept4: {os_error(exc)}"
        self._log.error(f"Temporary {self._name} Accept Error({reason}), sleeping {self._delay * 1000:.0f}ms")
        self._loop.remove_reader(self.sock.fileno())
        self._timer = call_later(self._delay, self._resume)
        self._delay = min(self._delay * 2, ACCEPT_MAX_SLEEP)

    def close(self) -> None:
        """Stop accepting. Idempotent."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock.fileno())
            self.sock.close()
            self._log.debug(f"{self._name} accept loop exiting..")
