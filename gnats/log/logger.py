"""Lines of the server's log, one an event, in nats-server's format (logger/log.go)."""

import os
import time
from collections.abc import Callable

from gnats.clock import monotonic, time_ns
from gnats.go.text import SECOND

RATE_LIMIT_INTERVAL = 1.0
"""Seconds in which the same rate limited statement is logged once."""

_MAX_STATEMENTS = 1024
_COLORS = {"INF": "32", "DBG": "36", "WRN": "0;93", "ERR": "31", "FTL": "31", "TRC": "33"}


class Logger:
    """Formats lines and hands each, ended by a newline, to `write`.

    `debug_on` and `trace_on` say whether debug() and trace() do anything: ask before building a costly text.
    A line that cannot be written is dropped: a full disk must not stop the server.
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
        self.log("INF", text)

    def warn(self, text: str) -> None:
        self.log("WRN", text)

    def error(self, text: str) -> None:
        self.log("ERR", text)

    def fatal(self, text: str) -> None:
        self.log("FTL", text)

    def debug(self, text: str) -> None:
        if self.debug_on:
            self.log("DBG", text)

    def trace(self, text: str) -> None:
        if self.trace_on:
            self.log("TRC", text)

    def log(self, level: str, text: str) -> None:
        """Write a line at one of INF, WRN, ERR, FTL, DBG, TRC, whatever is switched on."""
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
        """Whether a rate limited statement may be logged now (RateLimitErrorf and its sisters)."""
        now = monotonic()
        if now - self._limited.get(statement, -RATE_LIMIT_INTERVAL) < RATE_LIMIT_INTERVAL:
            return False
        if len(self._limited) >= _MAX_STATEMENTS:
            fresh = now - RATE_LIMIT_INTERVAL
            self._limited = {key: at for key, at in self._limited.items() if at > fresh}
        self._limited[statement] = now
        return True

    def reopen(self) -> bool:
        """Open the log file again, for rotation by renaming; False when this is not a file log.

        Raises ServerError when it cannot be opened; the old file stays in use.
        """
        return False

    def become(self, other: "Logger") -> None:
        """Log as `other` does from now on; who has this logger keeps it."""
        self.close()
        self.__class__ = other.__class__
        self.__dict__ = other.__dict__

    def close(self) -> None:
        """Release the log file, if any; later lines are dropped."""


class SilentLogger(Logger):
    """No log: what an embedded server has unless it is given one."""

    def __init__(self) -> None:
        super().__init__(len)

    def log(self, level: str, text: str) -> None:
        return


def _label(level: str, colors: bool) -> str:
    return f"[\x1b[{_COLORS[level]}m{level}\x1b[0m] " if colors else f"[{level}] "
