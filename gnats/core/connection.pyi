"""The I/O of a connection: socket, outbound queue, timers, opening and closing."""

from enum import IntEnum

from gnats.core.account import Account
from gnats.core.parser import Parser
from gnats.core.poller import Poller
from gnats.core.state import ServerState

class LogCode(IntEnum):
    LOG_PUBLISH_VIOLATION = 32
    LOG_REPLY_VIOLATION = 33
    LOG_SUBSCRIPTION_VIOLATION = 34
    LOG_MAX_SUBSCRIPTIONS = 35
    LOG_AUTH_VIOLATION = 36
    LOG_AUTH_TIMEOUT = 37
    LOG_SLOW_PENDING = 38
    LOG_SLOW_DEADLINE = 39
    LOG_FLUSH_ERROR = 40
    LOG_CLIENT_ERROR = 41
    LOG_PING_TIMER = 42
    LOG_PING_DELAYED = 43
    LOG_STALE = 44
    LOG_AUTO_UNSUBSCRIBE = 45
    LOG_PRODUCER_STALLED = 46
    LOG_CLOSING_OUT_OF_MEMORY = 47
    LOG_SUBSCRIPTION_REMOVED = 48
    LOG_IMPORT_SUBSCRIPTION = 56
    LOG_TRACE_ORIGIN = 57
    LOG_TRACE_BAD_DESTINATION = 58
    LOG_TLS_STARTING = 80
    LOG_TLS_COMPLETE = 81
    LOG_TLS_VERSION = 82
    LOG_TLS_TIMEOUT = 83
    LOG_TLS_ERROR = 84
    LOG_TLS_PROBE = 85
    LOG_TLS_NOT_PINNED = 86

class TraceCode(IntEnum):
    TRACE_IN = 0
    TRACE_OUT = 1
    TRACE_IN_PAYLOAD = 2
    TRACE_OUT_PAYLOAD = 3
    TRACE_DELSUB = 4

class Connection(Parser):
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
    @property
    def cid(self) -> int: ...
    def start(self, info: bytes, *, expect_connect: bool, auth_timeout: float = 0.0) -> None:
        """Hand the connection to its poller: send `info`, then read.

        With `expect_connect` any verb but CONNECT is an authorization violation, and after `auth_timeout`
        seconds without one the connection is closed.
        """
    def refuse(self, info: bytes, reason: int, err: str) -> None:
        """Greet, send `-ERR 'err'` and close, without reading anything."""
    def resume(self) -> None:
        """Go on parsing after a punted INFO has been answered."""
    def register(self, account: Account) -> None:
        """Bind to an account, before start()."""
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
