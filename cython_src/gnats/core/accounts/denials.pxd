"""Refuse a peer what its permissions deny: send it an error of its protocol, and log a line (permission violations of
client.go)."""
from gnats.core.net.connection cimport Connection
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription


cdef void refuse_publish(Connection c, const Slice *subject) noexcept nogil
cdef void refuse_reply(Connection c, const Slice *reply) noexcept nogil
# queue.n is 0 for a subscription in no queue group.
cdef void refuse_subscription(Connection c, const Slice *subject, const Slice *queue, const Slice *sid) noexcept nogil
# As refuse_subscription, for a subscription that new permissions have removed.
cdef void report_removed(Connection c, const Subscription *s) noexcept nogil
