"""The subject tree."""

class SubjectTree:
    """A map from subjects to numbers below 2**64 (for tests; stores keep more). Raises MemoryError."""

    def __len__(self) -> int: ...
    def insert(self, subject: bytes, value: int) -> int | None:
        """Sets the value of a subject; the value it had. Raises ValueError for none or over 65,535 bytes."""
    def find(self, subject: bytes) -> int | None: ...
    def delete(self, subject: bytes) -> int | None:
        """The value it had."""
    def match(self, filters: list[bytes]) -> list[tuple[bytes, int]]:
        """Subjects that match one of the filters, with their values, in order; without filters, all."""
    def count(self, filter: bytes) -> int:
        """How many subjects match a filter."""
    def clear(self) -> None: ...
    @property
    def memory(self) -> int:
        """Bytes held."""
    @property
    def subject_bytes(self) -> int:
        """Bytes in all subjects."""
