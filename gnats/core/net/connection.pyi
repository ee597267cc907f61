"""The I/O of a connection: socket, outbound queue, timers, opening and closing."""

from gnats.core.net.connectionbase import ConnectionBase

class Connection(ConnectionBase):
    """A connection, or one of the server's own subscribers (fd -1).

    It owns the connected, non-blocking socket `fd` from construction on. Call its methods on the control loop
    only.
    """

    def abort(self) -> None:
        """Finish a close that waits for the peer to read: drop the bytes that are queued."""
    def enqueue_proto(self, data: bytes) -> None:
        """Queue protocol bytes for the peer, and have the poller flush them."""
    @property
    def closed_reason(self) -> int:
        """The gnats.connection.closed_state.ClosedState it was closed for; 0 while open."""
