"""A connection's subscriptions by sid: a hash table chained through Subscription.next.

It has no lock of its own: core.accounts.subscriptions guards it with the connection's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.subjects.sublist cimport Subscription


cdef enum:
    SOME = 32            # subscriptions of a closed connection to remove before looking at the clock


cdef struct SubTable:
    Subscription **slots
    uint32_t mask        # number of buckets - 1
    uint32_t n


cdef Subscription *subtable_find(SubTable *t, const char *sid, size_t n) noexcept nogil
cdef bint subtable_add(SubTable *t, Subscription *s) noexcept nogil      # False when out of memory
cdef bint subtable_remove(SubTable *t, Subscription *s) noexcept nogil   # False when it is not there
# Write lines of subject, queue, sid, delivered and max, separated by blanks: as many whole lines as fit into `most`
# bytes. Free the text with free(); NULL when there is none, or no memory.
cdef char *subtable_text(SubTable *t, size_t most, size_t *n) noexcept nogil
# Remove up to SOME subscriptions and return their number, 0 when it is empty. at[0]: where to go on; begin with any
# number.
cdef size_t subtable_take_some(SubTable *t, uint32_t *at, Subscription **some) noexcept nogil
# Remove all, and return them chained through `next`.
cdef Subscription *subtable_take(SubTable *t) noexcept nogil
