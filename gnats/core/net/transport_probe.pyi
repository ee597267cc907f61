"""A transport layer that splits, delays and fails, for tests."""

from gnats.core.net.connection import Connection

def disturb(connection: Connection, most: int, *, reads: int = -1, writes: int = -1) -> None:
    """Disturb a connection that is not started: it reads and writes at most `most` bytes at a time (1 to 64),
    and nothing every other time. The read or write with this number (1 is the first) fails, and all after it;
    -1: none. Raises MemoryError."""
