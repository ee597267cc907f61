"""Timers; for tests."""

def probe_times(t: int, d: int) -> tuple[int, int, int]:
    """t + d, t - d, and t seconds in ns."""

def probe_duration(secs: float) -> int:
    """ns."""

class TimersProbe:
    """Timers alone, told apart by their number."""

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
        """One that is due."""
    @property
    def next(self) -> int:
        """The first deadline, 0 without one."""
