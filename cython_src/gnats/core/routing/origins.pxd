"""Where messages and interest come from: clusters of leaf nodes, which must not get back what is theirs."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.runtime.kinds cimport GATEWAY, LEAF, ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport SUB_SHADOW, Subscription, sub_sid
from gnats.includes.atomics cimport load32
from gnats.includes.text cimport starts_with_text


cdef inline bint same_cluster(const Slice *a, const Slice *b) noexcept nogil:
    """Return whether two clusters are the same. A server that is in none, whose name is empty, is in no other's."""
    return a.n != 0 and a.n == b.n and memcmp(a.p, b.p, a.n) == 0


cdef inline bint is_loop_subject(const char *subject, size_t n) noexcept nogil:
    """Return whether a leaf node subscribes to it only to see whether it comes back."""
    return starts_with_text(subject, n, b"$LDS.")


cdef inline bint is_link(const Subscription *s) noexcept nogil:
    """Return whether a subscription is a link's; also a leaf node's shadow (SUB_SHADOW)."""
    return s.kind == ROUTER or s.kind == LEAF or s.kind == GATEWAY


cdef inline uint32_t gateway_rank(const Subscription *s) noexcept nogil:
    """Return the place of a gateway's cluster among the others: the nearest has the lowest."""
    return load32(<uint32_t *> &(<Subscriber> s.client).rank)


cdef inline bint in_cluster(const Subscription *s, const Slice *cluster) noexcept nogil:
    """Return whether a leaf node's subscription is that of a cluster of leaf nodes. A shadow is none's: an import leads
    to another account of the same cluster, too."""
    return s.flags != SUB_SHADOW and same_cluster(&(<Subscriber> s.client).cluster, cluster)


cdef inline bint routed_origin(const Subscription *s, Slice *origin) noexcept nogil:
    """Read the cluster of leaf nodes that a route's subscription speaks for from its sid. False: it is for none."""
    cdef const char *sid = sub_sid(s)
    cdef const char *end
    if s.kind != ROUTER or s.sid_len < 2 or sid[0] != c'L':
        return False
    end = <const char *> memchr(sid + 2, c' ', s.sid_len - 2)
    origin.p = <char *> sid + 2
    origin.n = end - origin.p if end != NULL else 0
    return end != NULL


cdef inline bint message_origin(const Message *m, Slice *cluster) noexcept nogil:
    """Get the cluster of leaf nodes that a message comes from. False: it comes from none, or from another account."""
    if m.remote == NULL or m.hop != NULL:
        return False
    cluster[0] = m.remote.origin
    if (<Subscriber> m.origin).kind == LEAF:
        cluster[0] = (<Subscriber> m.origin).cluster
    return cluster.n != 0


# Return whether a message may go over the link of a subscription, by where it comes from (processMsgResults). In a
# queue group, routes may also get what comes from a route, when nothing else is left.
cdef bint may_go_over(const Message *m, const Subscription *s) noexcept nogil
