"""Watches of first and last subscriptions; see watches.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.subjects.subject cimport hash_bytes

cdef enum:
    FIRST_SLOTS = 16


cdef inline uint32_t hash_of(const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil:
    return hash_bytes(subject, n) ^ (hash_bytes(queue, qn) * 31 if qn else 0)


cdef Watch *watch_new(
    const char *subject, size_t n, const char *queue, size_t qn,
    void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx
) noexcept nogil:
    cdef Watch *w = <Watch *> malloc(sizeof(Watch) + n + qn)
    if w == NULL:
        return NULL
    w.fn = fn
    w.ctx = ctx
    w.hash = hash_of(subject, n, queue, qn)
    w.subject_len = <uint32_t> n
    w.queue_len = <uint32_t> qn
    w.interest = 0
    memcpy(w.data, subject, n)
    if qn:
        memcpy(w.data + n, queue, qn)
    return w


cdef bint watch_add(WatchTable *t, Watch *w) noexcept nogil:
    return chains_add(as_chains(t), as_chained(w), FIRST_SLOTS)


cdef void watch_remove(WatchTable *t, Watch *w) noexcept nogil:
    chains_remove(as_chains(t), as_chained(w))
    free(w)
    if t.n == 0:
        chains_clear(as_chains(t))


cdef void watch_notify(
    WatchTable *t, const char *subject, size_t n, const char *queue, size_t qn, bint interest
) noexcept nogil:
    cdef uint32_t hash = hash_of(subject, n, queue, qn)
    cdef Watch *w = t.slots[hash & t.mask]
    while w != NULL:
        if (
            w.hash == hash and w.subject_len == n and w.queue_len == qn and memcmp(w.data, subject, n) == 0
            and (qn == 0 or memcmp(w.data + n, queue, qn) == 0) and w.interest != interest
        ):
            w.interest = interest
            w.fn(w.ctx, interest)
        w = w.next
