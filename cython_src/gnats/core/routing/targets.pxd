"""The links that one message goes to: each of them once, with the queue groups that it has to deliver to.

Links to other servers are connections whose subscriptions speak for many clients. Routing collects them, and sends to
them after all clients: first to routes and leaf nodes, then to gateways, the nearest cluster first
(addSubToRouteTargets and msgHeaderForRouteOrLeaf in client.go, sendMsgToGateways in gateway.go).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.accounts.account cimport StreamImport
from gnats.core.messages.encode cimport Frames
from gnats.core.messages.message cimport Message
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription

cdef enum:
    FEW_TARGETS = 8      # links, and groups, that fit on the stack
    IMPORTED_ROOM = 256  # bytes of an imported subject that fit on the stack


cdef struct Target:
    void *link             # borrowed core.accounts.subscriber.Subscriber
    Subscription *sub      # the first of its subscriptions that was added: its account is the message's
    uint32_t groups        # how many of Targets.groups are its
    uint32_t turn          # targets are served in this order: 0, or a gateway's rank + 1


cdef struct Targets:
    size_t n, cap
    size_t gateways        # how many are gateways
    const char *prefix     # of the reply that they get; NULL: none (core.routing.gateway_reply)
    Target *at
    Target few[FEW_TARGETS]
    # subscriptions of links that were chosen in their queue groups, in the order of the groups
    size_t ngroups, groups_cap
    Subscription **groups
    Subscription *few_groups[FEW_TARGETS]


cdef inline void targets_begin(Targets *t) noexcept nogil:
    t.n = 0


# Return the subject that an importing account gives a message: made by a transform, it is in few[:IMPORTED_ROOM], or in
# memory to be freed; p is NULL without memory.
cdef Slice imported_subject(const Message *m, const StreamImport *im, char *few) noexcept nogil
# Add the link of a subscription. False: it does not take the message, or there is no memory.
cdef bint targets_add(Targets *t, const Message *m, Subscription *s) noexcept nogil
# Send to all; return to how many. The subscriptions' account counts it. Frees what targets_add has allocated.
cdef uint64_t targets_send(Targets *t, const Message *m, Frames *frames) noexcept nogil
# The same for a message that no account counts: it only passes through this server.
cdef uint64_t targets_forward(Targets *t, const Message *m, Frames *frames) noexcept nogil
