"""The open batches of a stream."""

class BatchLimits:
    """The limits of one server's batches, and what its streams have open of them.

    They are nats-server's until set().
    """

    def set(self, *, per_stream: int = 0, total: int = 0, size: int = 0, timeout: int = 0) -> None:
        """Limit what comes from now on; what is not above 0 is as nats-server has it.

        `per_stream` and `total`: batches that may be open at once; `size`: messages of an atomic batch;
        `timeout`: ns that a batch may be silent.
        """
    def get(self) -> dict[str, int]:
        """The limits by name."""
    @property
    def atomic_open(self) -> int:
        """Atomic batches that are open."""
    @property
    def fast_open(self) -> int:
        """Fast batches that are open."""
    @property
    def kept(self) -> int:
        """Bytes that atomic batches wait with for their commit."""

class BatchTableProbe:
    """A BatchTable alone, for tests."""

    def __len__(self) -> int: ...
    def __contains__(self, id: bytes) -> bool: ...
    def add(self, id: bytes, now: int) -> None: ...
    def touch(self, id: bytes, now: int) -> None: ...
    def remove(self, id: bytes) -> None: ...
    def ages(self) -> list[tuple[bytes, int]]:
        """(id, heard), the oldest first."""
