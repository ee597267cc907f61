"""The part of a connection that logs; see connectionbase.pxd."""
import cython

from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.string cimport memcpy, strlen

from gnats.core.net.log_records cimport (
    LOG_AUTO_UNSUBSCRIBE,
    LOG_IMPORT_SUBSCRIPTION,
    LOG_INVALID_REMOTE_SUB,
    LOG_LEFT_OUT,
    LOG_MAX_SUBSCRIPTIONS,
    LOG_PRODUCER_STALLED,
    LOG_PUBLISH_VIOLATION,
    LOG_SUBSCRIPTION_REMOVED,
    LOG_TRACE_BAD_DESTINATION,
    LOG_UNKNOWN_ACCOUNT,
)
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.inbox cimport EV_LOG, EV_TRACE, Event
from gnats.core.runtime.kinds cimport SYSTEM
from gnats.includes.atomics cimport add64, exchange64, load8, load64
from gnats.includes.units cimport SECOND


cdef inline bint comes_again(int code) noexcept nogil:
    """Return whether a connection can cause this record as often as it likes. Others mostly precede its close."""
    return (
        LOG_PUBLISH_VIOLATION <= code <= LOG_MAX_SUBSCRIPTIONS or code == LOG_AUTO_UNSUBSCRIBE
        or code == LOG_PRODUCER_STALLED or code == LOG_SUBSCRIPTION_REMOVED
        or LOG_IMPORT_SUBSCRIPTION <= code <= LOG_TRACE_BAD_DESTINATION
        or LOG_UNKNOWN_ACCOUNT <= code <= LOG_INVALID_REMOTE_SUB)


@cython.no_gc_clear   # __dealloc__ of subclasses needs the objects
cdef class ConnectionBase:
    """A source of log records: a connection, or one of the server's own clients."""

    def take_unlogged(self) -> int:
        """Return the number of records left out since the last call, because too many came in a second."""
        return exchange64(&self.unlogged, 0)

    cdef void log(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        if comes_again(code) and not self.may_log():
            if add64(&self.unlogged, 1):
                return
            code = LOG_LEFT_OUT
            n = 0
        self.inbox.post_data(EV_LOG, <void *> self, &self.source, code, b, data, n)

    cdef bint may_log(self) noexcept nogil:
        cdef int64_t now = monotonic_ns()
        if now - self.log_since >= SECOND:
            self.log_since = now
            self.log_lines = 0
        self.log_lines += self.log_lines <= LOG_LINES
        return self.log_lines <= LOG_LINES

    cdef void debugf(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        if load8(&self.server._debug):
            self.log(code, b, data, n)

    cdef void trace_line(self, int code, const char *a, size_t na, const char *b, size_t nb) noexcept nogil:
        self.trace_line_of(self, code, a, na, b, nb)

    cdef void trace_line_of(
        self, ConnectionBase causer, int code, const char *a, size_t na, const char *b, size_t nb
    ) noexcept nogil:
        cdef Event *ev = self.inbox.new_event(EV_TRACE, <void *> self, &self.source, na + 1 + nb)
        if ev == NULL:
            return
        ev.a = code
        memcpy(ev.data, a, na)
        if b != NULL:
            ev.data[na] = c' '
            memcpy(ev.data + na + 1, b, nb)
        else:
            ev.len = na
        self.inbox.post_caused(ev, &causer.source, 0)

    cdef void trace_msg(self, int code, const char *msg, size_t n, size_t hdr) noexcept nogil:
        """Trace a message of n bytes, CR LF included; the first `hdr` are its header."""
        self.trace_msg_of(self, code, msg, n, hdr)

    cdef void trace_msg_of(self, ConnectionBase causer, int code, const char *msg, size_t n, size_t hdr) noexcept nogil:
        cdef size_t most = load64(&self.server._max_traced)
        cdef Event *ev
        cdef const char *end = b"\r\n\r\n"
        n -= strlen(b"\r\n")
        if load8(&self.server._trace_headers):
            n = hdr - strlen(end) if hdr > strlen(end) else 0   # without the last CR LF and the empty line
        if n == 0:
            return
        ev = self.inbox.new_event(EV_TRACE, <void *> self, &self.source, min(n, most) if most else n)
        if ev == NULL:
            return
        ev.a = code
        ev.b = most and n > most
        memcpy(ev.data, msg, ev.len)
        self.inbox.post_caused(ev, &causer.source, 0)

    cdef void set_trace_level(self) noexcept nogil:
        self.trace = load8(&self.server._trace)
        if self.kind == SYSTEM and not load8(&self.server._trace_verbose):
            self.trace = 0
