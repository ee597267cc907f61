"""What a connection has the control plane log; see records.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.string cimport memcpy, strlen

from gnats.core.inbox cimport EV_LOG, EV_TRACE, Event, Inbox
from gnats.core.parser cimport SYSTEM, Parser
from gnats.core.state cimport ServerState
from gnats.includes.atomics cimport load8, load64


cdef class Recorder(Parser):
    """A connection as far as it tells of itself; see Connection."""

    cdef void log(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        (<Inbox> self.inbox).post_data(EV_LOG, <void *> self, code, b, data, n)

    cdef void debugf(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        if load8(&(<ServerState> self.server)._debug):
            self.log(code, b, data, n)

    cdef void trace_line(self, int code, const char *a, size_t na, const char *b, size_t nb) noexcept nogil:
        cdef Event *ev = (<Inbox> self.inbox).new_event(EV_TRACE, <void *> self, na + 1 + nb)
        if ev == NULL:
            return
        ev.a = code
        memcpy(ev.data, a, na)
        if b != NULL:
            ev.data[na] = c' '
            memcpy(ev.data + na + 1, b, nb)
        else:
            ev.len = na
        (<Inbox> self.inbox).post(ev)

    cdef void trace_msg(self, int code, const char *msg, size_t n, size_t hdr) noexcept nogil:
        """Trace a message of `n` bytes, its CR LF included, the first `hdr` of them its header."""
        cdef size_t most = load64(&(<ServerState> self.server)._max_traced)
        cdef Event *ev
        n -= 2
        if load8(&(<ServerState> self.server)._trace_headers):
            n = hdr - 4 if hdr > 4 else 0   # without its last line's end and the empty line
        if n == 0:
            return
        ev = (<Inbox> self.inbox).new_event(EV_TRACE, <void *> self, min(n, most) if most else n)
        if ev == NULL:
            return
        ev.a = code
        ev.b = most and n > most
        memcpy(ev.data, msg, ev.len)
        (<Inbox> self.inbox).post(ev)

    cdef void set_trace_level(self) noexcept nogil:
        self.trace = load8(&(<ServerState> self.server)._trace)
        if self.kind == SYSTEM and not load8(&(<ServerState> self.server)._trace_verbose):
            self.trace = 0

    cdef void trace_in_op(self, const char *op, const char *arg, size_t n) noexcept nogil:
        self.trace_line(TRACE_IN, op, strlen(op), arg, n)
