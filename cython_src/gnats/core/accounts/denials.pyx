"""Refuse a peer what its permissions deny; see denials.pxd."""
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc

from gnats.core.net.connection cimport (
    DENIED_FURTHER,
    DENIED_PUBLISH,
    DENIED_REPLY,
    DENIED_SUBSCRIPTION,
    Connection,
)
from gnats.core.net.log_records cimport (
    LOG_PUBLISH_VIOLATION,
    LOG_REPLY_VIOLATION,
    LOG_SUBSCRIPTION_REMOVED,
    LOG_SUBSCRIPTION_VIOLATION,
)
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription, sub_queue, sub_sid, sub_subject
from gnats.includes.text cimport put


cdef void refuse_publish(Connection c, const Slice *subject) noexcept nogil:
    c.session.send_denied(c, DENIED_PUBLISH, subject, NULL, NULL)
    c.log(LOG_PUBLISH_VIOLATION, 0, subject.p, subject.n)


cdef void refuse_reply(Connection c, const Slice *reply) noexcept nogil:
    c.session.send_denied(c, DENIED_REPLY, reply, NULL, NULL)
    c.log(LOG_REPLY_VIOLATION, 0, reply.p, reply.n)


cdef void refuse_subscription(
    Connection c, const Slice *subject, const Slice *queue, const Slice *sid
) noexcept nogil:
    c.session.send_denied(c, DENIED_SUBSCRIPTION, subject, queue, sid)
    log_subscription(c, LOG_SUBSCRIPTION_VIOLATION, subject, queue, sid)


cdef void report_removed(Connection c, const Subscription *s) noexcept nogil:
    cdef Slice subject, queue, sid
    subject.p = <char *> sub_subject(s)
    subject.n = s.subject_len
    queue.p = <char *> sub_queue(s)
    queue.n = s.queue_len
    sid.p = <char *> sub_sid(s)
    sid.n = s.sid_len
    if c.kind != CLIENT:
        return   # a server's: it is not told, nor is each of its many subscriptions logged
    c.session.send_denied(c, DENIED_FURTHER, &subject, &queue, &sid)
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
