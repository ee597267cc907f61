"""Switches that a server's pollers read, and counters that they write."""

class ServerState:
    debug: bool
    """Post debug log records (EV_LOG) for what nats-server logs at debug level."""
    trace: bool
    """Post EV_TRACE for each protocol operation."""
    trace_verbose: bool
    """Trace the system account's own clients, too."""
    trace_headers: bool
    """Trace only the headers of messages."""
    max_traced_msg_len: int
    """Bytes of a payload that a trace shows; 0: all."""
    no_fast_producer_stall: bool
    def __init__(self) -> None: ...
    def set_details(self, server: bytes, others: bytes = b"") -> None:
        """Set what requests to services say of the server: members of a JSON object, each behind a comma.

        Raises MemoryError.
        """
    @property
    def slow_consumers(self) -> int: ...
    @property
    def stale_connections(self) -> int: ...
    @property
    def stalls(self) -> int: ...
