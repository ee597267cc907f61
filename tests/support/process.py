"""Facts about processes: the sanitizer of this one, the memory of any."""

import os
from pathlib import Path

SANITIZED = os.environ.get("GNATS_SANITIZED", "")
"""The sanitizer of this run, empty for none: it slows the code down and keeps freed memory."""


def resident(pid: int | str = "self") -> int:
    """Return the resident bytes of a process; "self" is the test's own, with the servers in its threads."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
