class Usage:
    """Bytes that streams take, counted by them. Limits are bytes, -1 for none."""

    def __init__(self, *, max_memory: int = -1, max_storage: int = -1) -> None: ...
    @property
    def memory(self) -> int:
        """Bytes in memory."""
    @property
    def storage(self) -> int:
        """Bytes in files."""
    def add(self, memory: bool, n: int) -> None:
        """Count n more bytes, or fewer, that are no stream's yet."""
    max_memory: int
    max_storage: int
