"""The subscriptions of one connection by sid: a hash table chained through Subscription.next.

No lock of its own: core.client guards it with the connection's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.sublist cimport Subscription


cdef enum:
    SOME = 32            # subscriptions that a closed connection's poller takes out before it looks at its clock


cdef struct SubTable:
    Subscription **slots
    uint32_t mask        # slots less one
    uint32_t n


cdef Subscription *subtable_find(SubTable *t, const char *sid, size_t n) noexcept nogil
cdef bint subtable_add(SubTable *t, Subscription *s) noexcept nogil      # False when out of memory
cdef bint subtable_remove(SubTable *t, Subscription *s) noexcept nogil   # False when it is not there
# What is in it as text: lines of subject, queue, sid, delivered and max with a blank between, as many whole lines as
# fit into `most` bytes. To be freed with free(); NULL when there are none, or no memory.
cdef char *subtable_text(SubTable *t, size_t most, size_t *n) noexcept nogil
# Take up to SOME out; how many they are, 0 when it is empty. `at` is where to look next; any number will do.
cdef size_t subtable_take_some(SubTable *t, uint32_t *at, Subscription **some) noexcept nogil
# Take everything out, as a chain through `next`.
cdef Subscription *subtable_take(SubTable *t) noexcept nogil
