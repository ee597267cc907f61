"""The server's time; what waits has it through gnats.clock."""

def read_monotonic() -> int:
    """ns of the monotonic clock."""

def read_realtime() -> int:
    """ns since 1970."""

def is_held() -> bool:
    """Whether a test holds the clock."""

def hold(realtime: int = 0) -> int:
    """Stop the clock where it is, or at `realtime` ns since 1970.

    The result is an eventfd that pollers write when they have done all that is due.
    Raises RuntimeError when it is held or a poller is open, OSError.
    """

def move(ns: int) -> int:
    """Move a held clock on; the monotonic time then. Pollers and engines have to be woken.

    Raises RuntimeError when it is not held, ValueError for a step back.
    """

def step_realtime(ns: int) -> None:
    """Set a held realtime clock on or back; the monotonic one stays.

    Raises RuntimeError when it is not held.
    """

def release() -> None:
    """Let the clock go. Raises RuntimeError when it is not held, or while a poller is open."""
