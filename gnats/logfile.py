"""The log's file (logger/log.go): appending, opening it again, renaming it away and removing old ones."""

import os
import re
import time

from gnats.errors import ServerError
from gnats.gofmt import os_error

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_MODE = 0o640
_STAMP = re.compile(r"\d{4}(\.\d\d){5}\.\d{9}")


class LogFile:
    """A file that is appended to; `size` is its length in bytes.

    Raises ServerError when it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self.size = 0
        self.reopen()

    def write(self, line: bytes) -> None:
        """Append. Raises OSError."""
        self.size += os.write(self._fd, line)

    def reopen(self) -> None:
        """Open what has the file's name now.

        Raises ServerError when it cannot be opened; the old file stays in use.
        """
        try:
            self._open()
        except OSError as exc:
            raise ServerError(f"error opening file: open {self._path}: {os_error(exc)}") from exc

    def rotate(self) -> str:
        """Rename the file to <name>.<time>, begin another one, and return the new name of the old one.

        Raises OSError; the old file stays in use.
        """
        second, ns = divmod(time.time_ns(), 1_000_000_000)
        backup = time.strftime(f"{self._path}.%Y.%m.%d.%H.%M.%S", time.localtime(second)) + f".{ns:09d}"
        os.rename(self._path, backup)
        try:
            self._open()
        except OSError:
            os.rename(backup, self._path)
            raise
        return backup

    def purge(self, keep: int) -> list[str]:
        """Remove the oldest of the renamed files so that `keep` are left; the names of the removed.

        Raises OSError.
        """
        directory, name = os.path.split(self._path)
        backups = sorted(
            entry
            for entry in os.listdir(directory or ".")
            if entry.startswith(f"{name}.") and _STAMP.fullmatch(entry, len(name) + 1)
        )
        removed = backups[: max(len(backups) - keep, 0)]
        for entry in removed:
            os.remove(os.path.join(directory, entry))
        return removed

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        fd = os.open(self._path, _FLAGS, _MODE)
        self.close()
        self._fd = fd
        self.size = os.fstat(fd).st_size
