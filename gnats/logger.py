"""The server's log (log.go): one line an event, in nats-server's format, to stderr, a file or syslog."""

import os
import time
from collections.abc import Callable

from gnats.gofmt import os_error, quote
from gnats.logfile import LogFile
from gnats.opts import Options

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
        second, ns = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y/%m/%d %H:%M:%S", self._clock(second))
        return f"{self._stamp}.{ns // 1000:06d} "

    def allow(self, statement: str) -> bool:
        """Whether a rate limited statement may be logged now (RateLimitErrorf and its sisters)."""
        now = time.monotonic()
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

    def close(self) -> None:
        """Release the log file, if any; later lines are dropped."""


class FileLogger(Logger):
    """A log that appends to a file, and rotates it when it has grown over `size_limit` bytes (0: never).

    The file that was is renamed; of such files and the current one `max_num` are kept (0: all). Raises
    ServerError when the file cannot be opened.
    """

    def __init__(self, path: str, *, size_limit: int = 0, max_num: int = 0, **switches: bool) -> None:
        self._file = LogFile(path)
        self._size_limit = self._limit = size_limit
        self._max_num = max_num
        super().__init__(self._file.write, **switches)
        self._check_size()

    def log(self, level: str, text: str) -> None:
        super().log(level, text)
        if 0 < self._limit < self._file.size:
            self._rotate()

    def _check_size(self) -> None:
        if 0 < self._limit < self._file.size:
            self.notice("Rotating logfile...")

    def _rotate(self) -> None:
        try:
            backup = self._file.rotate()
        except OSError as exc:
            self._limit = 2 * self._file.size
            super().log(
                "ERR",
                f"Unable to rotate logfile ({os_error(exc)}), will attempt next rotation at size {self._limit}",
            )
            return
        self._limit = self._size_limit
        super().log("INF", f"Rotated log, backup saved as {quote(backup)}")
        if self._max_num:
            self._purge()

    def _purge(self) -> None:
        try:
            for name in self._file.purge(self._max_num - 1):
                super().log("INF", f"Purged log file {quote(name)}")
        except OSError as exc:
            reason = f"{os_error(exc)}), will attempt next rotation"
            super().log("ERR", f"Unable to remove backup log file {quote(str(exc.filename))} ({reason}")

    def reopen(self) -> bool:
        self._file.reopen()
        self._limit = self._size_limit
        self._check_size()
        return True

    def close(self) -> None:
        self._file.close()


class SilentLogger(Logger):
    """No log: what an embedded server has unless it is given one."""

    def __init__(self) -> None:
        super().__init__(len)

    def log(self, level: str, text: str) -> None:
        return


def logs_somewhere(opts: Options) -> bool:
    """Whether the options ask for another log than stderr."""
    return bool(opts.log_file or opts.syslog or opts.remote_syslog)


def configure_logger(opts: Options) -> Logger:
    """The log that the options ask for: a file, syslog, or stderr, in colours on a terminal.

    Raises ServerError when the file cannot be opened, or there is no syslog to speak to.
    """
    levels = {"debug": opts.debug, "trace": opts.trace}
    times = {"logtime": opts.logtime, "utc": opts.logtime_utc}
    if opts.log_file:
        limits = {"size_limit": opts.log_size_limit, "max_num": opts.log_max_num}
        return FileLogger(opts.log_file, **limits, **levels, **times)
    if opts.syslog or opts.remote_syslog:
        from gnats.syslog import SyslogLogger

        return SyslogLogger(opts.remote_syslog, **levels)
    return Logger(lambda line: os.write(2, line), colors=os.isatty(2), **levels, **times)


def should_report_connect_err(opts: Options, first_connect: bool, attempts: int) -> bool:
    """Whether a failed attempt to reach another server is logged: the first, then every so many."""
    every = opts.connect_error_reports if first_connect else opts.reconnect_error_reports
    return attempts == 1 or attempts % max(every, 1) == 0


def _label(level: str, colors: bool) -> str:
    return f"[\x1b[{_COLORS[level]}m{level}\x1b[0m] " if colors else f"[{level}] "
