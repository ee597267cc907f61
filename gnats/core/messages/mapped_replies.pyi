"""Mapped replies that a client was sent requests with."""

class MappedTable:
    """A table for tests; `now` in ns."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes of all replies."""
    def note(self, mapped: bytes, now: int) -> None:
        """Remember a mapped reply. Raises MemoryError."""
    def find(self, plain: bytes, now: int) -> bytes | None:
        """Return the mapped reply of a plain one; None: there is none."""
    def sweep(self, now: int) -> None:
        """Forget those that are too old."""
