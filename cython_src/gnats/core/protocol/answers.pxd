"""Answers to a connection's peer in the text protocol: +OK, -ERR, and refusals."""
from libc.stddef cimport size_t

from gnats.core.net.connection cimport Connection
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription


cdef void send_ok(Connection c) noexcept nogil
# Send -ERR 'text'.
cdef void send_err(Connection c, const char *text) noexcept nogil
# Send -ERR 'text "subject" more "queue"'; subject, more and queue may be NULL.
cdef void send_err_quoting(Connection c, const char *text, const char *subject, size_t n, const char *more,
                           const char *queue, size_t qn) noexcept nogil

# Send -ERR to the peer, and log it.
cdef void refuse_publish(Connection c, const Slice *subject) noexcept nogil
cdef void refuse_reply(Connection c, const Slice *reply) noexcept nogil
cdef void refuse_subscription(Connection c, const Slice *subject, const Slice *queue, const Slice *sid) noexcept nogil
# As refuse_subscription, for a subscription that new permissions have removed.
cdef void report_removed(Connection c, const Subscription *s) noexcept nogil
