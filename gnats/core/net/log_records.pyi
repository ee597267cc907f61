"""Log records of a connection for the control plane: EV_LOG and EV_TRACE."""

from enum import IntEnum

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
    LOG_OUT_OF_MEMORY = 49
    LOG_NOT_WATCHED = 50
    LOG_IMPORT_SUBSCRIPTION = 56
    LOG_TRACE_ORIGIN = 57
    LOG_TRACE_BAD_DESTINATION = 58
    LOG_LEFT_OUT = 59
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

class Recorder:
    """A source of log records: a connection, or one of the server's own clients."""

    @property
    def kind(self) -> int: ...
    @property
    def cid(self) -> int: ...
    def take_unlogged(self) -> int:
        """Return the number of records left out since the last call, because too many came in a second."""
