"""Queue a message to a connection (deliverMsg of client.go).

The publisher's poller does it: directly to its own connections; core.routing.remote delivers to those of others.
"""
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.encode cimport Frame
from gnats.core.messages.message cimport Message
from gnats.core.messages.reserved cimport plain_reply
from gnats.core.net.connection cimport Connection
from gnats.core.net.connectionbase cimport ConnectionBase
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport load8


# Outcome of a delivery; gnats.events.msgtrace has the texts.
cdef enum Egress:
    EGRESS_OK
    EGRESS_NO_ECHO
    EGRESS_SUB_DENY
    EGRESS_SUB_CLOSED
    EGRESS_CLIENT_CLOSED
    EGRESS_AUTO_UNSUBSCRIBED
    EGRESS_NO_STALL
    EGRESS_ONLY_NO_SUPPORT    # a link's peer does not know traces, and the message is to be traced only
    EGRESS_NO_SUPPORT         # it was sent the message, and will not trace it


# What PollState.handoffs begins with: deliveries that the end of the batch makes visible (core.routing.remote).
cdef struct Shown:
    const char *data    # of the last message that a subscriber may see before the end of the batch


cdef inline void note_shown(const Message *m) noexcept nogil:
    """A subscriber may see this message now, so deliver it to all others at once: one may answer it to another."""
    if m.ps.handoffs != NULL:
        (<Shown *> m.ps.handoffs).data = m.data


cdef inline bint is_dropped(Subscriber c, const Message *m) noexcept nogil:
    """Return whether to drop a client's message for a consumer over its gate, instead of stalling the client."""
    return load8(&c.gated) and load8(&c.server._no_stall) and (<Connection> m.origin).may_stall


cdef inline Slice reply_of(Subscriber c, const Message *m) noexcept nogil:
    """Return the reply that a connection sees in a message."""
    return plain_reply(&m.reply) if c.kind == CLIENT else m.reply


# Queue a message to a connection of the calling poller.
cdef Egress deliver_local(Subscriber c, const Message *m, const Frame *f) noexcept nogil
# Trace a delivery in the log, as the publisher's poller.
cdef void trace_out(Subscriber c, ConnectionBase publisher, const Frame *f) noexcept nogil
