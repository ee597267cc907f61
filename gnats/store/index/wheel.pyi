"""Expiry times of sequences."""

class HashWheel:
    """Expiry times of sequences, one for each; in ns since 1970. Raises MemoryError."""

    def __len__(self) -> int: ...
    def add(self, seq: int, expires: int) -> None:
        """Set when a sequence expires."""
    def find(self, seq: int) -> int | None:
        """Return when a sequence expires, or None."""
    def remove(self, seq: int) -> bool:
        """Remove a sequence. False: it had no time."""
    def take(self, now: int, most: int = 1024) -> list[tuple[int, int]]:
        """Take out at most `most` entries that expire at `now` or before: [(sequence, time)], in no order."""
    @property
    def next(self) -> int | None:
        """A time before which no sequence expires: the next expiry, or an earlier time after a removal."""
    def encode(self, high_seq: int) -> bytes:
        """Encode thw.db. high_seq: the first sequence whose message the file does not cover."""
    def decode(self, data: bytes) -> int:
        """Replace all entries by decoded ones; return high_seq of encode().

        Raises ValueError, after which the wheel is empty.
        """
