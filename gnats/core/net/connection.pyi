"""The I/O of a connection: socket, outbound queue, timers, opening and closing."""

from gnats.core.net.log_records import Recorder

class Connection(Recorder):
    """The life of a socket. Python makes Clients.

    Everything here may be called from the control loop only. `fd` is a connected non-blocking socket that the
    connection owns from now on (it closes it); -1 for an internal client.
    """

    def abort(self) -> None:
        """Drop what is queued: a close that waits for its peer to read goes through now."""
    def enqueue_proto(self, data: bytes) -> None:
        """Queue bytes for the peer behind what is queued already, and have the poller flush them."""
    @property
    def closed_reason(self) -> int:
        """0 while open."""
