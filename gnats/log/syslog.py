"""The log in a local or remote syslog (logger/syslog.go, and log/syslog of Go)."""

import contextlib
import errno
import os
import socket
import sys
import threading
import time
from collections import deque
from urllib.parse import urlsplit

from gnats.errors import ServerError
from gnats.go.text import os_error, quote
from gnats.log.logger import Logger

SEVERITIES = {"FTL": 2, "ERR": 3, "WRN": 4, "INF": 5, "TRC": 5, "DBG": 7}
KERN, DAEMON = 0 << 3, 3 << 3
"""Facilities, as in nats-server: KERN for a remote syslog, DAEMON for the local one."""

LOCAL_SOCKETS = ("/dev/log", "/var/run/syslog", "/var/run/log")
MAX_QUEUED = 8192
"""Lines that may wait for a syslog that does not answer; further lines are dropped and counted."""
MAX_DATAGRAM = 60_000
RETRY_AFTER = 1.0
"""Seconds between two attempts to reach a syslog."""
IO_TIMEOUT = 5.0
"""Seconds that a connect or a send may take."""
CLOSE_TIMEOUT = 1.0
"""Seconds that close() waits for the remaining lines."""

Address = str | tuple[str, int]


class SyslogLogger(Logger):
    """Logs to the local syslog, or with `remote` to tcp://host:port, udp://host:port or unix:///path.

    A line's level becomes its syslog severity. Raises ServerError for another `remote`, and when there is no
    local syslog.
    """

    def __init__(self, remote: str = "", *, debug: bool = False, trace: bool = False) -> None:
        connection = _remote(remote) if remote else _local()
        self._sender = Sender(connection)
        self._facility = KERN if remote else DAEMON
        self._local = isinstance(connection.address, str)
        self._host = "" if self._local else f"{socket.gethostname()} "
        self._tag = f"{sys.argv[0].rpartition('/')[2]}[{os.getpid()}]"
        super().__init__(self._sender.put, debug=debug, trace=trace)

    def log(self, level: str, text: str) -> None:
        priority = self._facility | SEVERITIES[level]
        line = f"<{priority}>{self._stamp_now()} {self._host}{self._tag}: {text}\n"
        self._sender.put(line.encode("utf-8", "backslashreplace"))

    def _stamp_now(self) -> str:
        if self._local:
            return time.strftime("%b %e %H:%M:%S")
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        return stamp.removesuffix("+0000") + "Z" if stamp.endswith("+0000") else f"{stamp[:-2]}:{stamp[-2:]}"

    def close(self) -> None:
        self._sender.close()


class Connection:
    """A socket to a syslog. It connects at its first use, and again after an error."""

    def __init__(self, name: str, kind: socket.SocketKind, address: Address) -> None:
        self.name = name
        self.address = address
        self._kind = kind
        self._sock: socket.socket | None = None

    def open(self) -> None:
        """Connect, unless connected. Raises OSError."""
        if self._sock is None:
            self._sock = self._connect()
            self._sock.settimeout(IO_TIMEOUT)

    def send(self, line: bytes) -> None:
        """Send a line. Raises OSError; the next line then uses a new connection."""
        self.open()
        assert self._sock is not None
        if self._kind == socket.SOCK_DGRAM:
            line = line[:MAX_DATAGRAM]
        try:
            self._sock.sendall(line)
        except OSError as exc:
            self.close()
            if exc.errno != errno.EMSGSIZE:  # a line that is too large would fail again: drop it
                raise

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _connect(self) -> socket.socket:
        if isinstance(self.address, str):
            return _connected(socket.AF_UNIX, self._kind, self.address)
        failure: OSError | None = None
        for family, kind, _, _, address in socket.getaddrinfo(*self.address, type=self._kind):
            try:
                return _connected(family, kind, address)
            except OSError as exc:
                failure = exc
        raise failure or OSError(f"no address for {self.address[0]}")


class Sender:
    """A thread that sends lines to a syslog: a slow syslog does not delay the threads that log."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._dropped = 0
        self._closing = False
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="gnats-syslog", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue a line; drop and count it when MAX_QUEUED lines wait. Any thread."""
        with self._changed:
            if len(self._lines) >= MAX_QUEUED:
                self._dropped += 1
            elif not self._closing:
                self._lines.append(line)
                self._changed.notify()

    def close(self) -> None:
        """End the thread after it has sent the queued lines, or after CLOSE_TIMEOUT."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(CLOSE_TIMEOUT)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._closing)
                if not self._lines:
                    break
                line = self._lines[0]
            if self._sent(line):
                self._lines.popleft()
                continue
            with self._changed:
                if self._closing or self._changed.wait_for(lambda: self._closing, RETRY_AFTER):
                    break
        self._connection.close()

    def _sent(self, line: bytes) -> bool:
        """Send a line; report the first failure, and the end of failures, on standard error."""
        try:
            self._send(line)
        except OSError as exc:
            if not self._failing:
                self._failing = True
                self._say(f"no connection ({os_error(exc)}), trying again")
            return False
        if self._failing:
            self._failing = False
            with self._changed:
                dropped, self._dropped = self._dropped, 0
            self._say(f"connected again, {dropped} lines were dropped")
        return True

    def _send(self, line: bytes) -> None:
        try:
            self._connection.send(line)
        except OSError:  # the syslog may have restarted: try one new connection
            self._connection.send(line)

    def _say(self, text: str) -> None:
        """Write a line about the log itself to standard error."""
        with contextlib.suppress(OSError):
            os.write(2, f"syslog {self._connection.name}: {text}\n".encode())


def _connected(family: int, kind: int, address: object) -> socket.socket:
    sock = socket.socket(family, kind)
    try:
        sock.settimeout(IO_TIMEOUT)
        sock.connect(address)  # type: ignore[arg-type]
    except OSError:
        sock.close()
        raise
    return sock


def _local() -> Connection:
    for path in LOCAL_SOCKETS:
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            connection = Connection(path, kind, path)
            with contextlib.suppress(OSError):
                connection.open()
                return connection
    raise ServerError("error connecting to syslog: there is none at " + ", ".join(LOCAL_SOCKETS))


def _remote(url: str) -> Connection:
    try:
        parts = urlsplit(url)
    except ValueError as exc:
        raise ServerError(f"error connecting to syslog: {quote(url)}: {exc}") from None
    if "\0" in url:
        raise ServerError(f"error connecting to syslog: {quote(url)}: a NUL is in no address")
    if parts.scheme == "unix" and parts.path:
        return Connection(url, socket.SOCK_STREAM, parts.path)
    if parts.scheme not in ("udp", "tcp"):
        raise ServerError(
            f"error invalid network type: {quote(parts.scheme)}: remote_syslog is udp:// or tcp://host:port"
        )
    kind = socket.SOCK_DGRAM if parts.scheme == "udp" else socket.SOCK_STREAM
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ServerError(f"error connecting to syslog: {quote(url)} is not {parts.scheme}://host:port")
    return Connection(url, kind, (host, port))
