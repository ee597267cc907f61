"""Answers to a connection's peer; see answers.pxd."""
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.net.connection cimport WRITE_ERROR, Connection, queue_text
from gnats.core.net.log_records cimport (
    LOG_PUBLISH_VIOLATION,
    LOG_REPLY_VIOLATION,
    LOG_SUBSCRIPTION_REMOVED,
    LOG_SUBSCRIPTION_VIOLATION,
    TRACE_OUT,
    trace_verb,
    trace_verb_with,
)
from gnats.core.runtime.quoting cimport quote, quote_room
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription, sub_queue, sub_sid, sub_subject
from gnats.includes.text cimport put, put_text


cdef void send_ok(Connection c) noexcept nogil:
    if c.trace:
        trace_verb(c, TRACE_OUT, b"OK")
    queue_text(c, b"+OK\r\n")


cdef void send_err(Connection c, const char *text) noexcept nogil:
    send_err_quoting(c, text, NULL, 0, NULL, NULL, 0)


cdef void send_err_quoting(
    Connection c, const char *text, const char *subject, size_t n, const char *more, const char *queue, size_t qn
) noexcept nogil:
    """Send -ERR 'text "subject" more "queue"'."""
    cdef const char *verb = b"-ERR '"
    cdef const char *end = b"'\r\n"
    cdef char *line = <char *> malloc(
        strlen(verb) + strlen(text) + quote_room(n) + (strlen(more) if more != NULL else 0) + quote_room(qn)
        + strlen(end))
    cdef char *p
    if line == NULL:
        c.out_of_memory(WRITE_ERROR)
        return
    p = put_text(put_text(line, verb), text)
    if subject != NULL:
        p = quote(p, subject, n)
    if more != NULL:
        p = put_text(p, more)
    if queue != NULL:
        p = quote(p, queue, qn)
    if c.trace:
        trace_verb_with(c, TRACE_OUT, b"-ERR", line + strlen(verb), p - line - strlen(verb))
    p = put_text(p, end)
    c.queue_outbound(line, p - line)
    free(line)


cdef void refuse_publish(Connection c, const Slice *subject) noexcept nogil:
    send_err_quoting(c, b"Permissions Violation for Publish to ", subject.p, subject.n, NULL, NULL, 0)
    c.log(LOG_PUBLISH_VIOLATION, 0, subject.p, subject.n)


cdef void refuse_reply(Connection c, const Slice *reply) noexcept nogil:
    send_err_quoting(c, b"Permissions Violation for Publish with Reply of ", reply.p, reply.n, NULL, NULL, 0)
    c.log(LOG_REPLY_VIOLATION, 0, reply.p, reply.n)


cdef void refuse_subscription(
    Connection c, const Slice *subject, const Slice *queue, const Slice *sid
) noexcept nogil:
    cdef const char *what = b"Permissions Violation for Subscription to "
    if queue.n:
        send_err_quoting(c, what, subject.p, subject.n, b" using queue ", queue.p, queue.n)
    else:
        send_err_quoting(c, what, subject.p, subject.n, NULL, NULL, 0)
    log_subscription(c, LOG_SUBSCRIPTION_VIOLATION, subject, queue, sid)


cdef void report_removed(Connection c, const Subscription *s) noexcept nogil:
    """Send -ERR for a subscription that new permissions have removed, and log it."""
    cdef Slice subject, queue, sid
    cdef const char *violation = b"Permissions Violation for Subscription to "
    cdef const char *in_group = b" using queue "
    cdef const char *under = b" (sid "
    cdef const char *end = b")"
    cdef char *text = <char *> malloc(
        strlen(violation) + quote_room(s.subject_len) + strlen(in_group) + quote_room(s.queue_len)
        + strlen(under) + quote_room(s.sid_len) + strlen(end) + 1)
    cdef char *p
    subject.p = <char *> sub_subject(s)
    subject.n = s.subject_len
    queue.p = <char *> sub_queue(s)
    queue.n = s.queue_len
    sid.p = <char *> sub_sid(s)
    sid.n = s.sid_len
    if text == NULL:
        c.out_of_memory(WRITE_ERROR)
    else:
        p = quote(put_text(text, violation), subject.p, subject.n)
        if queue.n:
            p = quote(put_text(p, in_group), queue.p, queue.n)
        p = quote(put_text(p, under), sid.p, sid.n)
        put_text(p, end)[0] = 0
        send_err(c, text)
        free(text)
    log_subscription(c, LOG_SUBSCRIPTION_REMOVED, &subject, &queue, &sid)


cdef inline char *put_with_nul(char *p, const Slice *s) noexcept nogil:
    p = put(p, s.p, s.n)
    p[0] = 0
    return p + 1


cdef void log_subscription(
    Connection c, int code, const Slice *subject, const Slice *queue, const Slice *sid
) noexcept nogil:
    cdef size_t n = subject.n + queue.n + sid.n + 2
    cdef char *data = <char *> malloc(n)
    cdef char *p = data
    if data == NULL:
        return
    p = put_with_nul(p, subject)
    p = put_with_nul(p, queue)
    put(p, sid.p, sid.n)
    c.log(code, 0, data, n)
    free(data)
