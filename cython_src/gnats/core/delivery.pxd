"""The receiving half of a connection that subscribes (deliverMsg of client.go).

The publisher's poller delivers: to connections of its own directly, to others under their lock.
"""
from gnats.core.encode cimport Frame
from gnats.core.message cimport Message
from gnats.core.subscriber cimport Subscriber
from gnats.core.sublist cimport Subscription


# What became of a delivery; gnats.msgtrace words them.
cdef enum Egress:
    EGRESS_OK
    EGRESS_NO_ECHO
    EGRESS_SUB_DENY
    EGRESS_SUB_CLOSED
    EGRESS_CLIENT_CLOSED
    EGRESS_AUTO_UNSUBSCRIBED
    EGRESS_NO_STALL


# Queue a message to a connection of the calling poller.
cdef Egress deliver_local(Subscriber c, const Message *m, const Subscription *s, const Frame *f) noexcept nogil
# Queue a message to a connection of another poller than the caller's.
cdef Egress deliver_remote(Subscriber c, const Message *m, Subscription *s, const Frame *f) noexcept nogil
