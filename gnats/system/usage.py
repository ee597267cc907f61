"""CPU and memory that the process takes (pse/pse_linux.go)."""

import os
import time
from pathlib import Path

from gnats.go.text import SECOND

_PAGE = os.sysconf("SC_PAGE_SIZE")
_INTERVAL = SECOND


class Usage:
    """The processor time this process used lately."""

    def __init__(self) -> None:
        self._percent = 0.0
        self._since = time.monotonic_ns()
        self._spent = time.process_time_ns()

    def cpu(self) -> float:
        """Percent of a core, over the time since it was last asked, at least a second."""
        now = time.monotonic_ns()
        if now - self._since >= _INTERVAL:
            spent = time.process_time_ns()
            self._percent = round((spent - self._spent) * 100 / (now - self._since), 1)
            self._since, self._spent = now, spent
        return self._percent


def resident_bytes() -> int:
    """The process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def cores() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0))


process = Usage()
