"""Log records of a connection, for the control plane: events and, while tracing, every line."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport strlen

from gnats.core.runtime.inbox cimport Inbox, Source
from gnats.core.runtime.state cimport ServerState

# Log records besides a parser's Violation; gnats.connection.log_lines has their texts.
cpdef enum LogCode:
    LOG_PUBLISH_VIOLATION = 32      # data: subject
    LOG_REPLY_VIOLATION = 33        # data: reply
    LOG_SUBSCRIPTION_VIOLATION = 34  # data: subject NUL queue NUL sid
    LOG_MAX_SUBSCRIPTIONS = 35
    LOG_AUTH_VIOLATION = 36
    LOG_AUTH_TIMEOUT = 37
    LOG_SLOW_PENDING = 38           # b: max_pending
    LOG_SLOW_DEADLINE = 39          # b: write_deadline in ns; data: "<chunks> <bytes>"
    LOG_FLUSH_ERROR = 40            # b: errno
    LOG_CLIENT_ERROR = 41           # data: what the client sent after -ERR
    LOG_PING_TIMER = 42
    LOG_PING_DELAYED = 43           # b: ns since the last activity
    LOG_STALE = 44
    LOG_AUTO_UNSUBSCRIBE = 45       # b: max; data: sid
    LOG_PRODUCER_STALLED = 46       # b: ns
    LOG_CLOSING_OUT_OF_MEMORY = 47
    LOG_SUBSCRIPTION_REMOVED = 48   # data: subject NUL queue NUL sid
    LOG_OUT_OF_MEMORY = 49          # of one of the server's own clients, which stays open
    LOG_NOT_WATCHED = 50            # b: errno
    LOG_IMPORT_SUBSCRIPTION = 56    # data: subject NUL account
    LOG_TRACE_ORIGIN = 57           # data: the account that a header names
    LOG_TRACE_BAD_DESTINATION = 58  # data: subject
    LOG_LEFT_OUT = 59               # records were left out: see Recorder.take_unlogged
    LOG_TLS_STARTING = 80
    LOG_TLS_COMPLETE = 81
    LOG_TLS_VERSION = 82            # b: 0x0303 or 0x0304; data: cipher suite
    LOG_TLS_TIMEOUT = 83
    LOG_TLS_ERROR = 84              # b: Tls.error_code; data: verify_error, text, NUL, chain; see gnats.tls.errors
    LOG_TLS_PROBE = 85              # as LOG_TLS_ERROR, of a peer that does not speak TLS at all
    LOG_TLS_NOT_PINNED = 86         # data: digest of the client's key, or nothing

cdef enum:
    LOG_LINES = 100                 # records a second of the kinds that a connection can cause again and again

cpdef enum TraceCode:
    TRACE_IN = 0            # data: verb SP argument
    TRACE_OUT = 1
    TRACE_IN_PAYLOAD = 2
    TRACE_OUT_PAYLOAD = 3
    TRACE_DELSUB = 4        # data: sid


cdef class Recorder:
    cdef readonly uint8_t kind    # gnats.core.runtime.kinds
    cdef uint8_t trace            # log every line and payload
    cdef readonly uint64_t cid
    cdef Inbox inbox
    cdef ServerState server
    cdef Source source            # its part of the inbox; under the inbox's lock
    # monotonic ns from which log_lines counts, for LOG_LINES
    cdef int64_t log_since
    cdef uint32_t log_lines
    cdef uint64_t unlogged        # records left out since take_unlogged(); atomic

    # Post a record. Of the kinds that a connection can cause again and again, LOG_LINES a second are posted, the rest
    # only counted; only the owner may log these kinds.
    cdef void log(self, int code, int64_t b, const char *data, size_t n) noexcept nogil
    cdef bint may_log(self) noexcept nogil
    # As log, when the server logs debug messages.
    cdef void debugf(self, int code, int64_t b, const char *data, size_t n) noexcept nogil
    # Post a trace of a line or a message, with a TraceCode. The `_of` functions charge it to `causer`: a publisher pays
    # for the traces of its messages' deliveries.
    cdef void trace_line(self, int code, const char *a, size_t na, const char *b, size_t nb) noexcept nogil
    cdef void trace_line_of(self, Recorder causer, int code, const char *a, size_t na, const char *b,
                            size_t nb) noexcept nogil
    cdef void trace_msg(self, int code, const char *msg, size_t n, size_t hdr) noexcept nogil
    cdef void trace_msg_of(self, Recorder causer, int code, const char *msg, size_t n, size_t hdr) noexcept nogil
    # Set `trace` by the server's trace switches.
    cdef void set_trace_level(self) noexcept nogil


cdef inline void trace_verb(Recorder r, int code, const char *verb) noexcept nogil:
    """Trace a line of one word, a literal."""
    r.trace_line(code, verb, strlen(verb), NULL, 0)


cdef inline void trace_verb_with(Recorder r, int code, const char *verb, const char *rest, size_t n) noexcept nogil:
    """Trace a line that begins with a literal."""
    r.trace_line(code, verb, strlen(verb), rest, n)
