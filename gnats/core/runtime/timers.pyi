"""A binary heap of deadlines; for tests."""

def probe_times(t: int, d: int) -> tuple[int, int, int]:
    """Return t + d, t - d, and t seconds in ns."""

def probe_duration(secs: float) -> int:
    """Return seconds in ns."""

class TimersProbe:
    """A heap of its own, with a number for each timer."""

    def __init__(self, room: int) -> None: ...
    def __len__(self) -> int: ...
    def reserve(self, n: int) -> None:
        """Raises MemoryError."""
    @property
    def capacity(self) -> int:
        """Timers that can be set without memory."""
    def set(self, i: int, when: int) -> None:
        """Raises MemoryError."""
    def clear(self, i: int) -> None: ...
    def expired(self, now: int) -> int | None:
        """Remove and return a timer that is due; None if none is."""
    @property
    def next(self) -> int:
        """The first deadline, 0 without one."""
