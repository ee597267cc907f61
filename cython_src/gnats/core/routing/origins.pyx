"""Where messages come from, and whither they may go; see origins.pxd."""
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.messages.reserved cimport is_service_reply
from gnats.core.routing.origins cimport in_cluster, message_origin
from gnats.core.runtime.kinds cimport GATEWAY, LEAF, ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription


cdef bint may_go_over(const Message *m, const Subscription *s) noexcept nogil:
    if s.kind == LEAF:
        return may_go_to_leaf(m, s)
    if m.remote == NULL:
        return True
    if s.kind == GATEWAY:
        return (<Subscriber> m.origin).kind == LEAF or (
            m.remote.returned and not is_service_reply(m.subject.p, m.subject.n))
    return (<Subscriber> m.origin).kind == GATEWAY or (
        (<Subscriber> m.origin).kind == LEAF and not (<Subscriber> m.origin).spoke)


cdef bint may_go_to_leaf(const Message *m, const Subscription *s) noexcept nogil:
    cdef Slice cluster
    if m.origin == s.client or (message_origin(m, &cluster) and in_cluster(s, &cluster)):
        return False
    return m.remote == NULL or (<Subscriber> m.origin).kind != ROUTER or not (
        <Subscriber> s.client).spoke or is_service_reply(m.subject.p, m.subject.n)
