"""A transport layer that splits, delays and fails, for tests."""

from gnats.core.connection import Connection

def disturb(connection: Connection, most: int, *, reads: int = -1, writes: int = -1) -> None:
    """Have a connection that is not started yet read and write at most so many bytes at a time (64 at most),
    and nothing every other time. After so many reads or writes each is an error. Raises MemoryError."""
