"""CPU and memory that the process uses (pse/pse_linux.go)."""

import os
import time
from pathlib import Path

from gnats.go.text import SECOND

_PAGE = os.sysconf("SC_PAGE_SIZE")
_INTERVAL = SECOND


class Usage:
    """The recent CPU use of this process."""

    def __init__(self) -> None:
        self._percent = 0.0
        self._since = time.monotonic_ns()
        self._spent = time.process_time_ns()

    def cpu(self) -> float:
        """Return percent of one core, measured over a second or more; calls in between get the last value."""
        now = time.monotonic_ns()
        if now - self._since >= _INTERVAL:
            spent = time.process_time_ns()
            self._percent = round((spent - self._spent) * 100 / (now - self._since), 1)
            self._since, self._spent = now, spent
        return self._percent


def resident_bytes() -> int:
    """Return the bytes of the process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def cores() -> int:
    """Return the number of processors that this process may run on."""
    return len(os.sched_getaffinity(0))


process = Usage()
