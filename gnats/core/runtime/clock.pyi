"""The server's time, which a test can hold and move; gnats.clock is the control plane's interface to it."""

def read_monotonic() -> int:
    """Return ns of the monotonic clock."""

def read_realtime() -> int:
    """Return ns since 1970."""

def is_held() -> bool:
    """Return whether a test holds the clock."""

def hold(realtime: int = 0, monotonic: int = 0) -> int:
    """Stop the clock where it is, or at `realtime` ns since 1970.

    Return an eventfd that a poller writes when nothing due is left. Raises RuntimeError when it is held or a
    poller is open, OSError.
    """

def move(ns: int) -> int:
    """Move a held clock on, and return its monotonic time. The caller must wake pollers and engines.

    Raises RuntimeError when it is not held, ValueError for a step back.
    """

def step_realtime(ns: int) -> None:
    """Move a held realtime clock on or back; the monotonic one stays.

    Raises RuntimeError when it is not held.
    """

def release() -> None:
    """Let the clock run. Raises RuntimeError when it is not held, or while a poller is open."""
