"""A subject tree of numbers, for tests."""

class SubjectTree:
    """A map from subjects to numbers below 2**64. Raises MemoryError."""

    def __len__(self) -> int: ...
    def insert(self, subject: bytes, value: int) -> int | None:
        """Set the value of a subject; return the value that it had, or None.

        Raises ValueError for an empty subject, or one over 65,535 bytes.
        """
    def find(self, subject: bytes) -> int | None: ...
    def delete(self, subject: bytes) -> int | None:
        """Delete a subject; return the value that it had, or None."""
    def match(self, filters: list[bytes]) -> list[tuple[bytes, int]]:
        """Return (subject, value) of the subjects that match one of the filters (none: all), in order."""
    def count(self, filter: bytes) -> int:
        """Return the number of subjects that match a filter."""
    def clear(self) -> None: ...
    @property
    def memory(self) -> int:
        """Bytes allocated by the tree."""
    @property
    def subject_bytes(self) -> int:
        """Sum of the lengths of all subjects, in bytes."""
