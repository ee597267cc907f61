"""Sets of sequences: what is deleted between the first and the last message of a block or a stream."""

class SequenceSet:
    """A set of numbers below 2**64, small for dense ranges. Raises MemoryError."""

    def __len__(self) -> int: ...
    def __contains__(self, seq: int) -> bool: ...
    def insert(self, seq: int) -> bool:
        """False when it was there."""
    def delete(self, seq: int) -> bool:
        """Was it there?"""
    def insert_range(self, first: int, last: int) -> int:
        """Inserts first to last, both included; how many of them were not there."""
    def delete_range(self, first: int, last: int) -> int:
        """Deletes first to last, both included; how many of them were there."""
    def count(self, first: int, last: int) -> int:
        """Members from first to last."""
    @property
    def first(self) -> int:
        """The smallest member, 0 for an empty set."""
    @property
    def last(self) -> int:
        """The largest member, 0 for an empty set."""
    def next_absent(self, seq: int) -> int:
        """The first number at or after seq that is no member; 0 when there is none below 2**64."""
    def prev_absent(self, seq: int) -> int:
        """The last number at or before seq that is no member; 0 when there is none."""
    def ranges(self, start: int = 0) -> list[tuple[int, int]]:
        """The runs of members at or after start: first and last of each."""
    def copy(self) -> SequenceSet: ...
    def encode(self) -> bytes:
        """As avl/seqset.go does: magic 22, version 2."""
    @staticmethod
    def decode(data: bytes) -> tuple[SequenceSet, int]:
        """The set at the beginning of data, version 1 or 2, and how many bytes it took. Raises ValueError."""
    @property
    def memory(self) -> int:
        """Bytes held."""
