"""Whose interest a link tells its peer of; see audience.pxd."""
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.routing.origins cimport in_cluster, is_loop_subject, routed_origin, same_cluster
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.interest_queue cimport FollowedAccount, interest_queue_add, interest_queue_note
from gnats.core.subjects.sublist cimport InterestSink, sub_subject
from gnats.core.subjects.trie cimport (
    KIND_LEAF,
    KIND_ROUTER,
    SUB_SHADOW,
    Interest,
    Node,
    Subscription,
    interest_total,
    is_remote,
    node_links,
    node_subs,
    sub_weight,
)

cdef enum:
    ORIGINS_OF_ALL = 3   # Subscriber.origins: the peer knows the origin `_`
    ENOUGH = 2   # subscriptions outside of queue groups that make no difference to a further one that comes or goes


cdef inline uint32_t weight_of(const Subscription *s) noexcept nogil:
    return sub_weight(s) if s.queue_len else 1


cdef inline Interest local_interest(uint32_t n) noexcept nogil:
    cdef Interest interest
    memset(&interest, 0, sizeof(interest))
    interest.local = n
    return interest


cdef void note_local(
    FollowedAccount *followed, const Slice *origin, const Subscription *s, int64_t before, uint32_t now
) noexcept nogil:
    cdef Interest old = local_interest(<uint32_t> before if before > 0 else 0), new = local_interest(now)
    interest_queue_note(followed, origin, s, &old, &new)


cdef inline int64_t difference(const Interest *before, const Interest *now) noexcept nogil:
    """Return how much more interest there is now."""
    return <int64_t> interest_total(now) - <int64_t> interest_total(before)


# -- routes ------------------------------------------------------------------------------------------------------------

cdef inline bint of_own_leaf(const Subscription *s) noexcept nogil:
    """Return whether it is a leaf node's that this server is the hub of."""
    return s.kind == KIND_LEAF and not (<Subscriber> s.client).spoke


cdef inline Slice told_origin(const Subscription *s) noexcept nogil:
    """Return the origin under which the interest of a leaf node is told: its cluster, or the one that stands for no
    cluster. That is also a shadow's, so that messages come from the same cluster."""
    cdef Slice origin = (<Subscriber> s.client).cluster
    if s.flags == SUB_SHADOW or origin.n == 0:
        origin.p = b"_"
        origin.n = 1
    return origin


cdef inline bint told_by_origin(Subscriber route, const Subscription *s) noexcept nogil:
    """Return whether the peer is told of it with an origin; else it is as this server's."""
    return route.origins != 0 and of_own_leaf(s) and (
        route.origins >= ORIGINS_OF_ALL or (s.flags != SUB_SHADOW and (<Subscriber> s.client).cluster.n != 0))


cdef uint32_t weight_of_origin(const Node *node, const Slice *origin) noexcept nogil:
    """Return the interest of the leaf nodes of an origin; outside of queue groups, some more are as many."""
    cdef Subscription **subs = node_subs(<Node *> node)
    cdef Slice own
    cdef uint32_t i, weight = 0
    for i in range(node_links(node)):
        if not of_own_leaf(subs[i]):
            continue
        own = told_origin(subs[i])
        if same_cluster(&own, origin):
            weight += weight_of(subs[i])
            if not subs[i].queue_len and weight == ENOUGH:
                break
    return weight


cdef uint32_t weight_of_own(Subscriber route, const Node *node, const Interest *now) noexcept nogil:
    """Return the interest that is told of without an origin; outside of queue groups, some more are as many."""
    cdef Subscription **subs
    cdef uint32_t i, weight = now.local
    subs = node_subs(<Node *> node)
    for i in range(node_links(node)):
        if not subs[i].queue_len and weight >= ENOUGH:
            break
        if of_own_leaf(subs[i]) and not told_by_origin(route, subs[i]):
            weight += weight_of(subs[i])
    return weight


cdef void note_for_route(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before, const Interest *now
) noexcept nogil:
    cdef FollowedAccount *followed = <FollowedAccount *> sink
    note_all_for_route(followed, <Subscriber> followed.queue.link, s, node, before, now)


cdef void note_all_for_route(
    FollowedAccount *followed, Subscriber route, const Subscription *s, const Node *node, const Interest *before,
    const Interest *now
) noexcept nogil:
    cdef Subscription **subs
    cdef Slice origin
    cdef uint32_t i, weight
    cdef int64_t more
    if interest_total(before) == 0:   # also when a link begins, and learns of all that is there
        note_local(followed, NULL, s, 0, weight_of_own(route, node, now))
        subs = node_subs(<Node *> node)
        for i in range(node_links(node)):
            if told_by_origin(route, subs[i]):
                origin = told_origin(subs[i])
                interest_queue_add(followed, &origin, subs[i], weight_of(subs[i]))
    elif told_by_origin(route, s):
        origin = told_origin(s)
        weight = weight_of_origin(node, &origin)
        note_local(followed, &origin, s, weight - difference(before, now), weight)
    elif of_own_leaf(s) or not is_remote(s):
        more = difference(before, now) if s.kind == KIND_LEAF else <int64_t> now.local - <int64_t> before.local
        if more:
            weight = weight_of_own(route, node, now)
            note_local(followed, NULL, s, weight - more, weight)


# -- leaf nodes --------------------------------------------------------------------------------------------------------

cdef bint counts(Subscriber leaf, const Subscription *s) noexcept nogil:
    """Return whether a leaf node's peer is told of a subscription."""
    cdef Slice origin
    if not is_remote(s):
        return True
    if s.client == <void *> leaf:
        return False
    if s.kind == KIND_LEAF:
        if leaf.isolated or in_cluster(s, &leaf.cluster):
            return False
        return not leaf.spoke or not (<Subscriber> s.client).spoke or is_loop_subject(sub_subject(s), s.subject_len)
    if routed_origin(s, &origin) and same_cluster(&origin, &leaf.cluster):
        return False
    return not leaf.spoke or is_loop_subject(sub_subject(s), s.subject_len)


cdef uint32_t weight_for(Subscriber leaf, const Node *node, const Interest *now) noexcept nogil:
    """Return the interest that a leaf node's peer is told of; outside of queue groups, some more are as many."""
    cdef Subscription **subs
    cdef uint32_t i, weight = now.local + now.services
    subs = node_subs(<Node *> node)
    for i in range(node_links(node)):
        if not subs[i].queue_len and weight >= ENOUGH:
            break
        if counts(leaf, subs[i]):
            weight += weight_of(subs[i])
    return weight


cdef void note_for_leaf(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before, const Interest *now
) noexcept nogil:
    cdef FollowedAccount *followed = <FollowedAccount *> sink
    cdef uint32_t weight
    if interest_total(before) == 0:
        note_local(followed, NULL, s, 0, weight_for(<Subscriber> followed.queue.link, node, now))
    elif counts(<Subscriber> followed.queue.link, s):
        weight = weight_for(<Subscriber> followed.queue.link, node, now)
        note_local(followed, NULL, s, weight - difference(before, now), weight)


# -- gateways ----------------------------------------------------------------------------------------------------------

cdef inline bint of_cluster(const Subscription *s) noexcept nogil:
    """Return whether a link's subscription is of this cluster: of another server, or of a leaf node that is ours."""
    return s.kind == KIND_ROUTER or of_own_leaf(s)


cdef bint has_linked(const Node *node, const Subscription *but) noexcept nogil:
    """Return whether links of this cluster subscribe, other than by `but`."""
    cdef Subscription **subs = node_subs(<Node *> node)
    cdef uint32_t i
    for i in range(node_links(node)):
        if subs[i] != but and of_cluster(subs[i]):
            return True
    return False


cdef void note_for_gateway(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before, const Interest *now
) noexcept nogil:
    """Note whether there is any interest: only the first subscription, and the last one, make a difference."""
    cdef FollowedAccount *followed = <FollowedAccount *> sink
    cdef bint begins
    if interest_total(before) == 0:   # also when a link begins, and learns of all that is there
        note_local(followed, NULL, s, 0, now.local != 0 or has_linked(node, NULL))
    elif not is_remote(s):
        begins = now.local != 0
        if begins != (before.local != 0) and not has_linked(node, NULL):
            note_local(followed, NULL, s, not begins, begins)
    elif of_cluster(s) and not now.local and not has_linked(node, s):
        begins = s.node != NULL
        if not begins or difference(before, now) == sub_weight(s):   # else its weight has changed
            note_local(followed, NULL, s, not begins, begins)
