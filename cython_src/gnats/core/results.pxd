"""A poller's cache of match results.

nats-server keeps one such cache a connection and a second one a sublist; here each poller has one, which its
connections share without a lock. An entry is good while the generation it was read at is the sublist's. A subject is
kept when it comes for the second time.
Only the owning poller touches it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from gnats.core.door cimport Door
from gnats.core.subject cimport same_bytes
from gnats.core.sublist cimport MatchResult, Sublist, sl_generation_at


cdef struct CacheEntry:
    CacheEntry *next     # in its bucket
    uint32_t hash
    uint32_t slot        # which of the sublist's generations is this subject's
    void *sl             # the Sublist it was matched in
    uint64_t gen
    MatchResult *r
    uint32_t len
    char subject[1]


cdef struct ResultCache:
    CacheEntry **slots
    uint32_t mask        # slots less one; 0 before the first entry
    uint32_t n           # atomic, one writer
    size_t bytes
    CacheEntry *last      # of the previous look-up: publishers repeat themselves
    MatchResult *passing  # of the last subject that was not kept
    Door door
    uint64_t hits, misses  # atomic, one writer


cdef MatchResult *results_find(ResultCache *c, Sublist sl, const char *subject, size_t n) noexcept nogil
cdef void results_free(ResultCache *c) noexcept nogil


cdef inline MatchResult *results_match(ResultCache *c, Sublist sl, const char *subject, size_t n) noexcept nogil:
    """The result for a subject, good until the next call; NULL when out of memory."""
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
