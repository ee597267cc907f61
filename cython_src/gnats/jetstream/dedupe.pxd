"""Message ids that a stream remembers for its duplicate window.

A first-in first-out queue of entries in time order, with a hash table over them. No lock of its own: the stream's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct DedupeEntry:
    uint64_t seq
    int64_t ts           # ns since 1970
    uint32_t hash
    uint32_t n
    char id[1]


# Entries one after the other in one piece of memory.
cdef struct DedupePage:
    DedupePage *next
    size_t first         # the oldest that is left
    size_t end
    size_t size
    char data[1]


cdef struct Dedupe:
    DedupeEntry **slots  # open addressing, linear probing; NULL when empty
    uint32_t mask
    uint32_t n           # ids that are remembered
    DedupePage *oldest
    DedupePage *newest


# The sequence that an id was stored with, 0 when it is not remembered.
cdef uint64_t dedupe_find(Dedupe *d, const char *id, size_t n) noexcept nogil
# Remember an id, instead of an older one that is equal. False when out of memory.
cdef bint dedupe_add(Dedupe *d, const char *id, size_t n, uint64_t seq, int64_t ts) noexcept nogil
# Forget what was stored at `until` or before; when the oldest of the others was, 0 when there is none.
cdef int64_t dedupe_expire(Dedupe *d, int64_t until) noexcept nogil
cdef void dedupe_free(Dedupe *d) noexcept nogil
