"""The part of a connection that logs."""

class ConnectionBase:
    """A source of log records: a connection, or one of the server's own clients."""

    @property
    def kind(self) -> int: ...
    @property
    def cid(self) -> int: ...
    def take_unlogged(self) -> int:
        """Return the number of records left out since the last call, because too many came in a second."""
