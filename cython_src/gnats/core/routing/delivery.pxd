"""Queue a message to a connection (deliverMsg of client.go).

The publisher's poller does it: directly to its own connections; core.routing.remote delivers to those of others.
"""
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.encode cimport Frame
from gnats.core.messages.message cimport Message
from gnats.core.net.log_records cimport Recorder
from gnats.core.subjects.sublist cimport Subscription


# Outcome of a delivery; gnats.events.msgtrace has the texts.
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
# Trace a delivery in the log, as the publisher's poller.
cdef void trace_out(Subscriber c, Recorder publisher, const Subscription *s, const Frame *f) noexcept nogil
