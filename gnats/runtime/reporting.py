"""Writes what the data plane reports about connections to the log."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from gnats.connection.log_lines import describe, trace_line
from gnats.core.net.connection import Connection
from gnats.core.net.log_records import LogCode
from gnats.core.runtime.inbox import EV_LOG, EV_TRACE

if TYPE_CHECKING:
    from gnats.log.logger import Logger
    from gnats.runtime.dispatch import EventTable

_RATE_LIMITED = frozenset((LogCode.LOG_AUTH_TIMEOUT, LogCode.LOG_PRODUCER_STALLED))


class Reported(Protocol):
    """The control plane's side of a connection; its text is the connection's name in the log."""

    def auth_user(self) -> str:
        """Return the user's name for authentication errors; empty without a user."""

    def rate_limit(self, log: "Logger", level: str, text: str) -> None:
        """Log a statement about the connection, unless the same was logged in the last second."""

    def log_left_out(self, log: "Logger") -> None:
        """Note that the data plane began to leave out log entries."""


class Reporting:
    """Logs the log and trace records of connections. `find` returns the session of a connection, if any.

    `heard` is called with a connection and the text of its peer's -ERR.
    """

    def __init__(
        self,
        log: "Logger",
        find: Callable[[Connection | None], Reported | None],
        heard: Callable[[Connection | None, str], object] | None = None,
    ) -> None:
        self._log = log
        self._find = find
        self._heard = heard

    def serve(self, events: "EventTable", kinds: tuple[int, ...]) -> None:
        """Handle the records of these kinds of connections."""
        events.on(EV_LOG, self._on_log, kinds)
        events.on(EV_TRACE, self._on_trace, kinds)

    def _on_log(self, source: Connection | None, code: int, b: int, data: object) -> None:
        session, log = self._find(source), self._log
        if session is None or not isinstance(data, bytes):
            return
        if code == LogCode.LOG_LEFT_OUT:
            session.log_left_out(log)
            return
        level, text = describe(source, code, b, data)
        if code in _RATE_LIMITED:
            session.rate_limit(log, level, text)
        elif code == LogCode.LOG_SUBSCRIPTION_REMOVED:
            user = session.auth_user() or 'User "N/A"'
            log.log(level, f"{text} for {user} - not authorized")
        else:
            log.log(level, f"{session} - {text}")
        if code == LogCode.LOG_CLIENT_ERROR and self._heard:
            self._heard(source, data.decode("utf-8", "backslashreplace"))

    def _on_trace(self, source: Connection | None, code: int, cut: int, data: object) -> None:
        session = self._find(source)
        if session and isinstance(data, bytes):
            self._log.trace(f"{session} - {trace_line(code, cut, data)}")
