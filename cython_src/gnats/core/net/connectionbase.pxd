"""The part of a connection that logs: it posts records for the control plane, and while tracing every line."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport strlen

from gnats.core.runtime.inbox cimport Inbox, Source
from gnats.core.runtime.state cimport ServerState

cdef enum:
    LOG_LINES = 100                 # records a second of the kinds that a connection can cause again and again


cdef class ConnectionBase:
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
    cdef void trace_line_of(self, ConnectionBase causer, int code, const char *a, size_t na, const char *b,
                            size_t nb) noexcept nogil
    cdef void trace_msg(self, int code, const char *msg, size_t n, size_t hdr) noexcept nogil
    cdef void trace_msg_of(self, ConnectionBase causer, int code, const char *msg, size_t n, size_t hdr) noexcept nogil
    # Set `trace` by the server's trace switches.
    cdef void set_trace_level(self) noexcept nogil


cdef inline void trace_verb(ConnectionBase c, int code, const char *verb) noexcept nogil:
    """Trace a line of one word, a literal."""
    c.trace_line(code, verb, strlen(verb), NULL, 0)


cdef inline void trace_verb_with(
    ConnectionBase c, int code, const char *verb, const char *rest, size_t n
) noexcept nogil:
    """Trace a line that begins with a literal."""
    c.trace_line(code, verb, strlen(verb), rest, n)
