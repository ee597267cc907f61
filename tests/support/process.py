"""The test process itself."""

import os
from pathlib import Path

SANITIZED = os.environ.get("GNATS_SANITIZED", "")
"""The sanitizer at work, empty for none: it takes its time, and keeps freed memory."""


def resident() -> int:
    """Bytes of memory in use, those of servers in threads included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
