"""When sequences expire."""

class HashWheel:
    """When sequences expire, each at one time; times are in ns since 1970. Raises MemoryError."""

    def __len__(self) -> int: ...
    def add(self, seq: int, expires: int) -> None:
        """Sets when a sequence expires."""
    def find(self, seq: int) -> int | None:
        """When a sequence expires."""
    def remove(self, seq: int) -> bool:
        """Was it there?"""
    def take(self, now: int, most: int = 1024) -> list[tuple[int, int]]:
        """Takes out (sequence, time) of what expires at `now` or before, in no order."""
    @property
    def next(self) -> int | None:
        """A time before which nothing expires: the next one, or an earlier one after a removal."""
    def encode(self, high_seq: int) -> bytes:
        """As thw.db: the entries, and up to which sequence the stream was looked through for them."""
    def decode(self, data: bytes) -> int:
        """Replaces the entries by encoded ones; the high sequence of them.

        Raises ValueError, after which the wheel is empty.
        """
