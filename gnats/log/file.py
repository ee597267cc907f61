"""The log in a file (logger/log.go): append, reopen, rotate, remove old files."""

import os
import re
import time
from pathlib import Path

from gnats.clock import time_ns
from gnats.errors import ServerError
from gnats.go.text import SECOND, os_error, quote
from gnats.log.logger import Logger
from gnats.system.paths import system_path

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MODE = 0o640
_STAMP = re.compile(r"\d{4}(\.\d\d){5}\.\d{9}")


class FileLogger(Logger):
    """Appends to a file, and rotates it when it is larger than `size_limit` bytes (0: never).

    A rotation renames the file. `max_num` files are kept, the current one included (0: all). Raises
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
                f"Unable to rotate logfile ({os_error(exc)}),"
                f" will attempt next rotation at size {self._limit}",
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


class LogFile:
    """A file for appending; `size` is its length in bytes. Raises ServerError if it cannot be opened."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._fd = -1
        self.size = 0
        self.reopen()

    def write(self, line: bytes) -> None:
        """Append a line. Raises OSError."""
        self.size += os.write(self._fd, line)

    def reopen(self) -> None:
        """Open the file that has the log's name now.

        Raises ServerError when it cannot be opened; the old file remains in use.
        """
        try:
            self._open()
        except OSError as exc:
            raise ServerError(f"error opening file: open {self._path}: {os_error(exc)}") from exc

    def rotate(self) -> str:
        """Rename the file to <name>.<time> and create a new one. Return the renamed file's path.

        Raises OSError; the old file remains in use.
        """
        second, ns = divmod(time_ns(), SECOND)
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(second))
        backup = self._path.rename(f"{self._path}.{stamp}.{ns:09d}")
        try:
            self._open()
        except OSError:
            backup.rename(self._path)
            raise
        return str(backup)

    def purge(self, keep: int) -> list[str]:
        """Remove the oldest renamed files; keep `keep` of them. Return the removed names. Raises OSError."""
        name = self._path.name
        backups = sorted(
            path
            for path in self._path.parent.iterdir()
            if path.name.startswith(f"{name}.") and _STAMP.fullmatch(path.name, len(name) + 1)
        )
        removed = backups[: max(len(backups) - keep, 0)]
        for path in removed:
            path.unlink()
        return [path.name for path in removed]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        fd = os.open(system_path(self._path), _FLAGS, _MODE)
        self.close()
        self._fd = fd
        self.size = os.fstat(fd).st_size
