"""A connection that subscribes and publishes, whatever protocol its peer speaks: what messages are routed from and to.

Subscriptions are changed by the owner under the connection's lock, so that others may read them under it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.connection cimport Connection
from gnats.core.guard cimport Guard
from gnats.core.permissions cimport Permissions
from gnats.core.sublist cimport Subscription
from gnats.core.subtable cimport SubTable


# What a client is asked to tell about itself, as JSON in pieces: what comes before its account, before its round trip
# time, and behind the server.
cdef struct ClientDetails:
    uint32_t head_n, mid_n, tail_n
    char data[1]


cdef class Subscriber(Connection):
    cdef void *account            # borrowed core.account.Account that it speaks for; the owner's once it is started
    cdef uint8_t echo             # it is sent what it has published
    cdef uint8_t headers          # it understands headers; atomic
    cdef uint8_t verbose          # it is sent +OK for what it does
    cdef uint8_t no_responders    # it is told when nobody receives its request
    cdef Guard guard
    cdef SubTable subs            # by sid; under lock for other threads
    cdef SubTable shadows         # in the accounts that its own imports from, by the sid of their subscription
    cdef uint64_t nsubs           # subscriptions; atomic
    cdef uint32_t leaving_at      # where a table is looked at next, once it is closed
    cdef uint64_t native_sids     # given out so far
    cdef uint64_t batch_msgs, batch_bytes   # published in the read in hand
    cdef int64_t rtt              # ns, 0 as long as nothing was measured; atomic
    cdef ClientDetails *details   # NULL until set; atomic
    # under lock: auto-unsubscribed by other threads' deliveries
    cdef Subscription **reap
    cdef uint32_t nreap
    cdef size_t reap_cap

    cdef int stage_permissions(self, Permissions permissions) except -1
