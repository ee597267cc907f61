"""The open batches of a stream."""

class BatchLimits:
    """The limits of one server's atomic and fast batches, and the number of open ones in all its streams.

    The limits are nats-server's defaults until set().
    """

    def set(self, *, per_stream: int = 0, total: int = 0, size: int = 0, timeout: int = 0) -> None:
        """Set the limits for messages from now on; a limit of 0 or less means nats-server's default.

        `per_stream` and `total`: batches open at the same time; `size`: messages of an atomic batch;
        `timeout`: ns without a message after which a batch is abandoned.
        """
    def get(self) -> dict[str, int]:
        """Return the limits by name."""
    @property
    def atomic_open(self) -> int:
        """The number of open atomic batches."""
    @property
    def fast_open(self) -> int:
        """The number of open fast batches."""
    @property
    def kept(self) -> int:
        """Bytes of messages of atomic batches that wait for their commit."""

class BatchTableProbe:
    """A BatchTable alone, for tests."""

    def __len__(self) -> int: ...
    def __contains__(self, id: bytes) -> bool: ...
    def add(self, id: bytes, now: int) -> None: ...
    def touch(self, id: bytes, now: int) -> None: ...
    def remove(self, id: bytes) -> None: ...
    def ages(self) -> list[tuple[bytes, int]]:
        """Return (id, time of the last message), the oldest first."""
