"""The test process itself."""

import os
from pathlib import Path

SANITIZED = os.environ.get("GNATS_SANITIZED", "")
"""The sanitizer at work, empty for none: it takes its time, and keeps freed memory."""


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process uses: of the test's own, servers in threads included."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
