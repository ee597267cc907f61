"""The server's log, one line for each entry, in nats-server's format (logger/log.go)."""

import os
import time
from collections.abc import Callable

from gnats.clock import monotonic, time_ns
from gnats.go.text import SECOND

RATE_LIMIT_INTERVAL = 1.0
"""Seconds in which the same rate-limited statement is logged only once."""

_MAX_STATEMENTS = 1024
_COLORS = {"INF": "32", "DBG": "36", "WRN": "0;93", "ERR": "31", "FTL": "31", "TRC": "33"}


class Logger:
    """Formats lines and calls `write` with each, a newline at its end.

    debug() and trace() do nothing unless `debug_on` or `trace_on`: check these before building a costly text.
    A line whose `write` raises OSError is dropped: a full disk must not stop the server.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        debug: bool = False,
        trace: bool = False,
        logtime: bool = True,
        utc: bool = False,
        colors: bool = False,
    ) -> None:
        self.debug_on = debug
        self.trace_on = trace
        self._write = write
        self._clock = time.gmtime if utc else time.localtime
        self._logtime = logtime
        self._prefix = f"[{os.getpid()}] "
        self._second = -1
        self._stamp = ""
        self._labels = {level: _label(level, colors) for level in _COLORS}
        self._limited: dict[str, float] = {}

    def notice(self, text: str) -> None:
        """Log a line at level INF (Noticef)."""
        self.log("INF", text)

    def warn(self, text: str) -> None:
        """Log a line at level WRN (Warnf)."""
        self.log("WRN", text)

    def error(self, text: str) -> None:
        """Log a line at level ERR (Errorf)."""
        self.log("ERR", text)

    def fatal(self, text: str) -> None:
        """Log a line at level FTL (Fatalf). Does not end the process, unlike nats-server's."""
        self.log("FTL", text)

    def debug(self, text: str) -> None:
        """Log a line at level DBG, if `debug_on` (Debugf)."""
        if self.debug_on:
            self.log("DBG", text)

    def trace(self, text: str) -> None:
        """Log a line at level TRC, if `trace_on` (Tracef)."""
        if self.trace_on:
            self.log("TRC", text)

    def log(self, level: str, text: str) -> None:
        """Write a line at level INF, WRN, ERR, FTL, DBG or TRC, without looking at debug_on and trace_on."""
        line = f"{self._prefix}{self._time()}{self._labels[level]}{text}\n"
        try:
            self._write(line.encode("utf-8", "backslashreplace"))
        except OSError:
            return

    def _time(self) -> str:
        if not self._logtime:
            return ""
        second, ns = divmod(time_ns(), SECOND)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", self._clock(second))
        return f"{self._stamp}.{ns // 1000:06d} "

    def allow(self, statement: str) -> bool:
        """Check whether a rate-limited statement may be logged now (RateLimitErrorf and others)."""
        now = monotonic()
        if now - self._limited.get(statement, -RATE_LIMIT_INTERVAL) < RATE_LIMIT_INTERVAL:
            return False
        if len(self._limited) >= _MAX_STATEMENTS:
            fresh = now - RATE_LIMIT_INTERVAL
            self._limited = {key: at for key, at in self._limited.items() if at > fresh}
        self._limited[statement] = now
        return True

    def reopen(self) -> bool:
        """Reopen the log file, after it was renamed for rotation. Return False if there is no log file.

        Raises ServerError when it cannot be opened; the old file remains in use.
        """
        return False

    def become(self, other: "Logger") -> None:
        """Replace this logger's destination and format by those of `other`; references to it stay valid."""
        self.close()
        self.__class__ = other.__class__
        self.__dict__ = other.__dict__

    def close(self) -> None:
        """Close the log file, if there is one; later lines are dropped."""


class SilentLogger(Logger):
    """Drops all lines; the default of an embedded server."""

    def __init__(self) -> None:
        super().__init__(len)

    def log(self, level: str, text: str) -> None:
        return


def _label(level: str, colors: bool) -> str:
    return f"[\x1b[{_COLORS[level]}m{level}\x1b[0m] " if colors else f"[{level}] "
