"""The receiving half of a connection that subscribes (deliverMsg of client.go).

The publisher's poller delivers: to connections of its own directly, to others under their lock.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.encode cimport Frame
from gnats.core.imports cimport Importer
from gnats.core.message cimport Message
from gnats.core.pollstate cimport PollState
from gnats.core.records cimport Recorder
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


cdef class Deliverer(Importer):
    # under lock
    cdef Subscription **reap      # auto-unsubscribed by other threads' deliveries
    cdef uint32_t nreap
    cdef size_t reap_cap

    # Queue a message to us, a connection of the calling poller.
    cdef Egress deliver_local(self, const Message *m, const Subscription *s, const Frame *f) noexcept nogil
    # Queue a message to us, a connection of another poller than the caller's.
    cdef Egress deliver_remote(self, const Message *m, Subscription *s, const Frame *f) noexcept nogil
    # Have our owner look at us, when the calling poller `ps` ends its batch.
    cdef void signal_after_batch(self, PollState *ps) noexcept nogil
    cdef bint reap_later(self, Subscription *s) noexcept nogil
    cdef void trace_out(self, Recorder publisher, const Subscription *s, const Frame *f) noexcept nogil
