"""The number of messages of each subject of a store, sorted by subject.

The caller of collect_totals() holds the store's lock; sort_totals() needs none.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.index.filter cimport Filter


# The number of messages of one subject.
cdef struct Total:
    uint64_t msgs
    size_t at                  # offset of the subject in Totals.text; `subject` is set when the text is complete
    const char *subject
    uint32_t n


# A growing list of Total and the text of its subjects; all zero: empty.
cdef struct Totals:
    Total *all
    size_t n, room
    char *text
    size_t text_n, text_room


# Append the number of messages of each subject that `f` matches. False: no memory.
cdef bint collect_totals(StoreBase s, const Filter *f, Totals *t) noexcept nogil
cdef void sort_totals(Totals *t) noexcept nogil
cdef void free_totals(Totals *t) noexcept nogil
