class Usage:
    """The bytes that streams use; the streams count them. Limits are bytes, -1 for none."""

    def __init__(self, *, max_memory: int = -1, max_storage: int = -1) -> None: ...
    @property
    def memory(self) -> int:
        """Bytes in memory."""
    @property
    def storage(self) -> int:
        """Bytes in files."""
    def add(self, memory: bool, n: int) -> None:
        """Add n bytes (or subtract: n < 0) that do not belong to a stream yet."""
    max_memory: int
    max_storage: int
