"""A poller's cache of match results.

nats-server has such a cache in each connection and a second one in each sublist; here each poller has one for all its
connections, without a lock. An entry is valid while the sublist's generation is the one that it was read at. A subject
is cached when it comes for the second time. Only the owning poller touches the cache.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from gnats.core.runtime.doorkeeper cimport Door
from gnats.core.runtime.turn cimport Turn
from gnats.core.subjects.subject cimport same_bytes
from gnats.core.subjects.sublist cimport MatchResult, Sublist, sl_generation_at


cdef struct CacheEntry:
    CacheEntry *next     # in its bucket
    uint32_t hash
    uint32_t slot        # index of the subject's generation in the sublist
    void *sl             # the Sublist
    uint64_t gen         # generation when it was matched
    MatchResult *r
    uint32_t len
    char subject[1]


cdef struct ResultCache:
    CacheEntry **slots
    uint32_t mask        # number of buckets - 1; 0 before the first entry
    uint32_t n           # entries; atomic, the owner writes
    size_t bytes         # of entries and their results
    CacheEntry *last      # the last entry found: publishers repeat themselves
    MatchResult *passing  # result for the last subject that was not cached
    Door door
    Turn *turn           # the poller's, for which matching is work
    uint64_t hits, misses  # atomic, the owner writes


# Look a subject up in the whole table; match it in the sublist when it is not there or stale. As results_match.
cdef MatchResult *results_find(ResultCache *c, Sublist sl, const char *subject, size_t n) noexcept nogil
cdef void results_free(ResultCache *c) noexcept nogil


cdef inline MatchResult *results_match(ResultCache *c, Sublist sl, const char *subject, size_t n) noexcept nogil:
    """Return the result for a subject, good until the next call; NULL when out of memory."""
    cdef CacheEntry *e = c.last
    if (
        e != NULL
        and e.len == n
        and e.sl == <void *> sl
        and same_bytes(e.subject, subject, n)
        and e.gen == sl_generation_at(sl, e.slot)
    ):
        return e.r
    return results_find(c, sl, subject, n)
