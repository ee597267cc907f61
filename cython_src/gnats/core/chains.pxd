"""Hash tables whose entries are chained in buckets.

Each table knows its own keys and looks them up itself; what all of them do alike is here. A table begins as a Chains
does, its entries as a Chained.
"""
from libc.stdint cimport uint32_t


cdef struct Chained:
    Chained *next        # in its bucket
    uint32_t hash


cdef struct Chains:
    Chained **slots      # NULL before the first entry
    uint32_t mask        # slots less one
    uint32_t n           # entries; atomic, one writer


# False when out of memory. `first`: buckets of a table that had none, a power of two.
cdef bint chains_add(void *table, void *entry, uint32_t first) noexcept nogil
# Its buckets get fewer when most are empty; the entry is the caller's again. False when it is not there.
cdef bint chains_remove(void *table, void *entry) noexcept nogil
# Without buckets; what was in them is the caller's.
cdef void chains_clear(void *table) noexcept nogil
