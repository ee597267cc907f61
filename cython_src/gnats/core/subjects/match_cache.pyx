"""A poller's cache of match results; see match_cache.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.runtime.doorkeeper cimport door_known
from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear
from gnats.core.runtime.turn cimport turn_spend
from gnats.core.subjects.subject cimport hash_bytes, same_bytes
from gnats.core.subjects.sublist cimport MatchResult, Sublist, sl_generation_at, sl_generation_slot
from gnats.includes.atomics cimport bump64

cdef enum:
    FIRST_SLOTS = 64
    MAX_ENTRIES = 65536
    MAX_BYTES = 16 * 1024 * 1024


cdef MatchResult *results_find(ResultCache *c, Sublist sl, const char *subject, size_t n) noexcept nogil:
    cdef uint32_t hash = hash_bytes(subject, n)
    cdef uint32_t slot = sl_generation_slot(subject, n)
    cdef uint64_t gen
    cdef CacheEntry *e = NULL
    cdef MatchResult *r
    # Read before the match: a change in between makes the entry stale, never wrong.
    gen = sl_generation_at(sl, slot)
    if c.n:
        e = c.slots[hash & c.mask]
    while e != NULL:
        if e.hash == hash and e.len == n and e.sl == <void *> sl and same_bytes(e.subject, subject, n):
            break
        e = e.next
    if e != NULL and e.gen == gen:
        bump64(&c.hits, 1)
        c.last = e
        return e.r
    bump64(&c.misses, 1)
    if c.n >= MAX_ENTRIES or c.bytes > MAX_BYTES:
        clear(c)
        e = NULL
    r = sl.match(subject, n)
    if r == NULL:
        return NULL
    turn_spend(c.turn, r.visited)
    if e == NULL and not door_known(&c.door, hash):
        free(c.passing)
        c.passing = r
        return r
    if e == NULL:
        e = <CacheEntry *> malloc(sizeof(CacheEntry) + n)
        if e != NULL:
            e.hash = hash
        if e == NULL or not chains_add(as_chains(c), as_chained(e), FIRST_SLOTS):
            free(e)
            free(c.passing)   # without memory, do not cache it
            c.passing = r
            return r
        e.sl = <void *> sl
        e.slot = slot
        e.len = <uint32_t> n
        memcpy(e.subject, subject, n)
        c.bytes += sizeof(CacheEntry) + n
    else:
        c.bytes -= e.r.nbytes
        free(e.r)
    e.gen = gen
    e.r = r
    c.bytes += r.nbytes
    c.last = e
    return r


cdef void clear(ResultCache *c) noexcept nogil:
    cdef uint32_t i
    cdef CacheEntry *e
    if c.slots != NULL:
        for i in range(c.mask + 1):
            while c.slots[i] != NULL:
                e = c.slots[i]
                c.slots[i] = e.next
                free(e.r)
                free(e)
    chains_clear(as_chains(c))
    c.last = NULL
    c.bytes = 0


cdef void results_free(ResultCache *c) noexcept nogil:
    clear(c)
    free(c.passing)
    c.passing = NULL
    free(c.door.tags)
    c.door.tags = NULL
