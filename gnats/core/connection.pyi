"""The I/O of a connection: socket, outbound queue, timers, opening and closing."""

from gnats.core.poller import Poller
from gnats.core.records import Recorder
from gnats.core.state import ServerState

class Connection(Recorder):
    """One connection: its socket, parser state, subscriptions and outbound queue.

    Everything here may be called from the control loop only. `fd` is a connected non-blocking socket that the
    connection owns from now on (it closes it); -1 for an internal client.
    """

    def __init__(
        self,
        kind: int,
        fd: int,
        cid: int,
        poller: Poller,
        state: ServerState,
        *,
        max_control_line: int = 4096,
        max_payload: int = 1048576,
        max_pending: int = 67108864,
        max_subs: int = -1,
        write_deadline: float = 10.0,
        ping_interval: float = 120.0,
        ping_max: int = 2,
    ) -> None: ...
    @property
    def kind(self) -> int: ...
    def start(self, info: bytes, *, expect_connect: bool, auth_timeout: float = 0.0) -> None:
        """Hand the connection to its poller: send `info`, then read.

        With `expect_connect` any verb but CONNECT is an authorization violation, and after `auth_timeout`
        seconds without one the connection is closed.
        """
    def refuse(self, info: bytes, reason: int, err: str) -> None:
        """Greet, send `-ERR 'err'` and close, without reading anything."""
    def resume(self) -> None:
        """Go on parsing after a punted INFO has been answered."""
    def close_connection(self, reason: int, err: str | None = None) -> None:
        """Send `-ERR 'err'` if given and close; EV_CLOSED follows once that is done. Idempotent."""
    def abort(self) -> None:
        """Drop what is queued: a close that waits for its peer to read goes through now."""
    def set_limits(
        self,
        *,
        max_control_line: int,
        max_payload: int,
        max_subs: int,
        ping_interval: float,
        ping_max: int,
    ) -> None:
        """Limits from now on, -1 for none; subscriptions over theirs stay."""
    def enqueue_proto(self, data: bytes) -> None:
        """Queue bytes for the peer behind what is queued already, and have the poller flush them."""
    def snapshot(self) -> dict[str, int]:
        """pending_bytes, in_msgs, out_msgs, in_bytes, out_bytes, subscriptions, last_activity (unix ns),
        rtt (ns), stalls."""
    @property
    def closed_reason(self) -> int:
        """0 while open."""
