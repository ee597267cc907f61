"""What all kinds of connections have in common on the control plane: closing, log lines, punted verbs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from gnats.clock import Timer, call_later
from gnats.connection.closed_state import ClosedState

if TYPE_CHECKING:
    from gnats.log.logger import Logger

LEFT_OUT_TOLD = 1.0
"""Seconds from the first log entry left out to the line with their number."""
_MAPPED = "::ffff:"


class Closable(Protocol):
    """A connection of the data plane that can be closed."""

    def close_connection(self, reason: int, err: str | None = None) -> None:
        """Send `-ERR 'err'` if given and close; EV_CLOSED follows. Idempotent."""

    def take_unlogged(self) -> int:
        """Return the number of log records left out since the last call."""


class ReportedConnection:
    """The control plane's side of a connection: closes it, and counts log entries that are left out.

    A subclass sets `connection`, None once the connection is closed. Its text is its name in the log.
    """

    __slots__ = ("_left_out", "leaving")

    def __init__(self) -> None:
        self._left_out: Timer | None = None
        self.leaving = False
        """True once close() was called."""

    @property
    def connection(self) -> Closable | None:
        """The data plane's side; None once it is closed."""
        raise NotImplementedError

    def close(self, log: "Logger", reason: ClosedState, err: str | None = None) -> None:
        """Close the connection; send `-ERR 'err'` first if `err` is given. Idempotent."""
        if self.connection is None or self.leaving:
            return
        self.leaving = True
        if err and log.trace_on:
            log.trace(f"{self} - ->> [-ERR {err}]")
        self.connection.close_connection(reason, err)

    def log_left_out(self, log: "Logger") -> None:
        """Start the timer of tell_left_out(): the data plane began to leave out log entries."""
        self._left_out = call_later(LEFT_OUT_TOLD, self.tell_left_out, log)

    def tell_left_out(self, log: "Logger") -> None:
        """Log how many entries were left out, if log_left_out() was called since the last time."""
        if self._left_out and self.connection:
            self._left_out.cancel()
            self._left_out = None
            left_out = self.connection.take_unlogged()
            log.warn(f"{self} - Left out {left_out} log entries: too many in a second")

    def log_limited(self, log: "Logger", level: str, statement: str, user: str = "") -> None:
        """Log a statement unless the same was logged in the last second, of any connection."""
        if log.allow(statement):
            log.log(level, f"{self} - {statement}" + (f" - {user}" if user else ""))


class Waiting(Protocol):
    """A connection that waits for an answer to a verb; see ReportedConnection."""

    @property
    def connection(self) -> Closable | None: ...

    def close(self, log: "Logger", reason: ClosedState, err: str | None = None) -> None: ...


R = TypeVar("R", bound=Waiting)


def answer_punt(
    connection: R | None, data: object, answer: Callable[[R, bytes], None], log: "Logger"
) -> bool:
    """Answer a verb for which a connection waits; return whether it may have resumed.

    `connection` is None for one that is gone. `data` is the verb's argument; a poller without memory for it
    posts None: then it cannot be answered, and the connection is closed.
    """
    if connection is None:
        return False
    if not isinstance(data, bytes):
        connection.close(log, ClosedState.READ_ERROR)
        return False
    try:
        answer(connection, data)
    except MemoryError:  # the peer would wait for an answer for ever
        log.error(f"{connection} - Out of memory - Closing")
        if connection.connection:
            connection.connection.close_connection(ClosedState.READ_ERROR)
    return True


def unmapped(host: str) -> str:
    """Return an accepted connection's address; of IPv4 through an IPv6 socket, the IPv4 address."""
    return host[len(_MAPPED) :] if host.startswith(_MAPPED) and "." in host else host
