"""Sets of sequences, such as those deleted between the first and the last message of a stream."""

class SequenceSet:
    """A set of numbers below 2**64, small for dense ranges. Raises MemoryError."""

    def __len__(self) -> int: ...
    def __contains__(self, seq: int) -> bool: ...
    def insert(self, seq: int) -> bool:
        """Insert a number. False: it was a member."""
    def delete(self, seq: int) -> bool:
        """Delete a number. False: it was no member."""
    def insert_range(self, first: int, last: int) -> int:
        """Insert first to last, both included; return how many were not members."""
    def delete_range(self, first: int, last: int) -> int:
        """Delete first to last, both included; return how many were members."""
    def count(self, first: int, last: int) -> int:
        """Return the number of members from first to last, both included."""
    @property
    def first(self) -> int:
        """The smallest member, 0 for an empty set."""
    @property
    def last(self) -> int:
        """The largest member, 0 for an empty set."""
    def next_absent(self, seq: int) -> int:
        """Return the first number at or after seq that is no member; 0 when there is none below 2**64."""
    def prev_absent(self, seq: int) -> int:
        """Return the last number at or before seq that is no member; 0 when there is none."""
    def ranges(self, start: int = 0) -> list[tuple[int, int]]:
        """Return (first, last) of each run of consecutive members at or after start."""
    def copy(self) -> SequenceSet: ...
    def encode(self) -> bytes:
        """Encode the set as avl/seqset.go does: magic 22, version 2."""
    @staticmethod
    def decode(data: bytes) -> tuple[SequenceSet, int]:
        """Decode the set (version 1 or 2) at the beginning of data; return it and its size in bytes.

        Raises ValueError.
        """
    @property
    def memory(self) -> int:
        """Bytes allocated by the set."""
