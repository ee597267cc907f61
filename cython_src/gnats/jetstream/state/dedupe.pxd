"""The message ids that a stream remembers for its duplicate window.

A first-in first-out queue of entries in the order of time, with a hash table over them. The stream's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct DedupeEntry:
    uint64_t seq
    int64_t ts           # ns since 1970
    uint32_t hash
    uint32_t n
    char id[1]


# Consecutive entries in one piece of memory.
cdef struct DedupePage:
    DedupePage *next
    size_t first         # offset of the oldest entry that is left
    size_t end           # offset behind the newest
    size_t size          # bytes of data
    char data[1]


cdef struct Dedupe:
    DedupeEntry **slots  # open addressing, linear probing; NULL when empty
    uint32_t mask
    uint32_t n           # ids in `slots`
    DedupePage *oldest
    DedupePage *newest


# Return the sequence of the message with an id; 0 when the id is not remembered.
cdef uint64_t dedupe_find(Dedupe *d, const char *id, size_t n) noexcept nogil
# Remember an id; an equal older one is replaced. ts: ns since 1970. False when out of memory.
cdef bint dedupe_add(Dedupe *d, const char *id, size_t n, uint64_t seq, int64_t ts) noexcept nogil
# Forget ids stored at `until`, ns since 1970, or before. Return the time of the oldest id left, 0 for none.
cdef int64_t dedupe_expire(Dedupe *d, int64_t until) noexcept nogil
# Forget the ids of messages with a sequence behind `last`, which have been taken back.
cdef void dedupe_forget(Dedupe *d, uint64_t last) noexcept nogil
cdef void dedupe_free(Dedupe *d) noexcept nogil
