"""Answers to a connection's peer in NATS' text protocol; see answers.pxd."""
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.net.connection cimport (
    DENIED_FURTHER,
    DENIED_PUBLISH,
    DENIED_REPLY,
    WRITE_ERROR,
    Connection,
    Denial,
    queue_text,
)
from gnats.core.net.connectionbase cimport trace_verb, trace_verb_with
from gnats.core.net.log_records cimport TRACE_OUT
from gnats.core.runtime.quoting cimport quote, quote_room
from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport put_text

cdef const char *BEGIN = b"-ERR '"
cdef const char *END = b"'\r\n"
cdef const char *PUBLISH = b"Permissions Violation for Publish to "
cdef const char *REPLY = b"Permissions Violation for Publish with Reply of "
cdef const char *SUBSCRIPTION = b"Permissions Violation for Subscription to "
cdef const char *IN_GROUP = b" using queue "
cdef const char *UNDER = b" (sid "


cdef void send_ok(Connection c) noexcept nogil:
    if c.trace:
        trace_verb(c, TRACE_OUT, b"OK")
    queue_text(c, b"+OK\r\n")


cdef void send_err(Connection c, const char *text) noexcept nogil:
    cdef char *line = <char *> malloc(strlen(BEGIN) + strlen(text) + strlen(END))
    if line == NULL:
        c.out_of_memory(WRITE_ERROR)
    else:
        send_line(c, line, put_text(put_text(line, BEGIN), text))


cdef void send_denied(
    Connection c, Denial what, const Slice *subject, const Slice *queue, const Slice *sid
) noexcept nogil:
    cdef const char *text = PUBLISH if what == DENIED_PUBLISH else REPLY if what == DENIED_REPLY else SUBSCRIPTION
    cdef bint in_group = queue != NULL and queue.n != 0
    cdef bint numbered = what == DENIED_FURTHER
    cdef char *line
    cdef char *p
    line = <char *> malloc(
        strlen(BEGIN) + strlen(text) + quote_room(subject.n)
        + (strlen(IN_GROUP) + quote_room(queue.n) if in_group else 0)
        + (strlen(UNDER) + quote_room(sid.n) + strlen(b")") if numbered else 0) + strlen(END))
    if line == NULL:
        c.out_of_memory(WRITE_ERROR)
        return
    p = quote(put_text(put_text(line, BEGIN), text), subject.p, subject.n)
    if in_group:
        p = quote(put_text(p, IN_GROUP), queue.p, queue.n)
    if numbered:
        p = put_text(quote(put_text(p, UNDER), sid.p, sid.n), b")")
    send_line(c, line, p)


cdef void send_line(Connection c, char *line, char *end) noexcept nogil:
    """Trace, end and send an -ERR in memory that is freed here."""
    if c.trace:
        trace_verb_with(c, TRACE_OUT, b"-ERR", line + strlen(BEGIN), end - line - strlen(BEGIN))
    c.queue_outbound(line, put_text(end, END) - line)
    free(line)
