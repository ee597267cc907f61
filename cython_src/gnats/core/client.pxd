"""A client (the protocol half of client.go): verbs, subscriptions, and what it publishes.

Subscriptions are changed by the owner under the connection's lock, so that others may read them under it.
"""
from libc.stddef cimport size_t

from gnats.core.delivery cimport Deliverer
from gnats.core.sublist cimport Subscription


cdef class Client(Deliverer):
    # NULL and error[0] < 0 for an invalid subject, 0 without memory
    cdef Subscription *add_sub(self, char *subject, size_t sn, char *queue, size_t qn, char *sid, size_t n,
                               int *error) noexcept nogil
    cdef int refuse_msg(self, int what) noexcept nogil
    # Handle a message whose header may ask for a trace.
    cdef int process_traced_msg(self, char *msg, size_t n) noexcept nogil
    cdef bint route_msg(self, char *msg, size_t n) noexcept nogil
    cdef void no_responders(self) noexcept nogil
