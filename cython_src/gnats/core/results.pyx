"""A poller's cache of match results; see results.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from gnats.core.subject cimport hash_bytes, same_bytes
from gnats.core.sublist cimport MatchResult, Sublist, sl_generation_at, sl_generation_slot
from gnats.includes.atomics cimport bump64

cdef enum:
    FIRST_SLOTS = 64
    MAX_SLOTS = 65536
    MAX_ENTRIES = 65536
    MAX_BYTES = 16 * 1024 * 1024


cdef bint grow(ResultCache *c) noexcept nogil:
    cdef uint32_t slots = (c.mask + 1) * 2 if c.mask else FIRST_SLOTS
    cdef uint32_t i
    cdef CacheEntry **fresh = <CacheEntry **> calloc(slots, sizeof(CacheEntry *))
    cdef CacheEntry *e
    cdef CacheEntry *following
    if fresh == NULL:
        return False
    if c.slots != NULL:
        for i in range(c.mask + 1):
            e = c.slots[i]
            while e != NULL:
                following = e.next
                e.next = fresh[e.hash & (slots - 1)]
                fresh[e.hash & (slots - 1)] = e
                e = following
        free(c.slots)
    c.slots = fresh
    c.mask = slots - 1
    return True


cdef MatchResult *results_find(ResultCache *c, Sublist sl, const char *subject, size_t n) noexcept nogil:
    cdef uint32_t hash = hash_bytes(subject, n)
    cdef uint32_t slot = sl_generation_slot(subject, n)
    cdef uint64_t gen
    cdef CacheEntry *e
    cdef MatchResult *r
    if c.slots == NULL and not grow(c):
        return NULL
    # before the match: what changes meanwhile makes the entry stale, never wrong
    gen = sl_generation_at(sl, slot)
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
        results_clear(c)
        e = NULL
    r = sl.match(subject, n)
    if r == NULL:
        return NULL
    if e == NULL:
        if c.slots == NULL or (c.n > c.mask and c.mask + 1 < MAX_SLOTS):
            if not grow(c) and c.slots == NULL:
                free(r)
                return NULL
        e = <CacheEntry *> malloc(sizeof(CacheEntry) + n)
        if e == NULL:
            free(r)
            return NULL
        e.sl = <void *> sl
        e.hash = hash
        e.slot = slot
        e.len = <uint32_t> n
        memcpy(e.subject, subject, n)
        e.next = c.slots[hash & c.mask]
        c.slots[hash & c.mask] = e
        c.n += 1
        c.bytes += sizeof(CacheEntry) + n
    else:
        c.bytes -= e.r.nbytes
        free(e.r)
    e.gen = gen
    e.r = r
    c.bytes += r.nbytes
    c.last = e
    return r


cdef void results_clear(ResultCache *c) noexcept nogil:
    cdef uint32_t i
    cdef CacheEntry *e
    if c.slots != NULL:
        for i in range(c.mask + 1):
            while c.slots[i] != NULL:
                e = c.slots[i]
                c.slots[i] = e.next
                free(e.r)
                free(e)
        free(c.slots)
    c.slots = NULL
    c.last = NULL
    c.mask = c.n = 0
    c.bytes = 0
