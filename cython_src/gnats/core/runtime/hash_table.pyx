"""Hash tables whose entries are chained in buckets; see hash_table.pxd."""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free

from gnats.includes.atomics cimport bump32, store32
from gnats.includes.prefetch cimport prefetch

cdef enum:
    KEPT = 64            # buckets below which a table does not shrink
    AHEAD = 8            # buckets whose first entry is on its way from memory while others are moved


cdef bint resize(Chains *t, uint32_t size) noexcept nogil:
    cdef Link *fresh = <Link *> calloc(size, sizeof(Link))
    cdef Link e
    cdef Link following
    cdef uint32_t i
    if fresh == NULL:
        return False
    if t.slots != NULL:
        for i in range(t.mask + 1):
            prefetch(t.slots[i + AHEAD & t.mask])
            e = t.slots[i]
            while e != NULL:
                following = e.next
                e.next = fresh[e.hash & (size - 1)]
                fresh[e.hash & (size - 1)] = e
                e = following
        free(t.slots)
    t.slots = fresh
    t.mask = size - 1
    return True


cdef bint chains_add(Chains *t, Chained *e, uint32_t first) noexcept nogil:
    if t.slots == NULL:
        if not resize(t, first):
            return False
    elif t.n > t.mask:
        resize(t, (t.mask + 1) * 2)   # without memory, chains get longer
    e.next = t.slots[e.hash & t.mask]
    t.slots[e.hash & t.mask] = e
    bump32(&t.n, 1)
    return True


cdef bint chains_remove(Chains *t, Chained *e) noexcept nogil:
    cdef Link *link
    if t.n == 0:
        return False
    link = &t.slots[e.hash & t.mask]
    while link[0] != e:
        if link[0] == NULL:
            return False
        link = &link[0].next
    link[0] = e.next
    bump32(&t.n, <uint32_t> -1)
    if t.mask >= KEPT and t.n < t.mask // 8:
        resize(t, (t.mask + 1) // 4)
    return True


cdef void chains_clear(Chains *t) noexcept nogil:
    free(t.slots)
    t.slots = NULL
    t.mask = 0
    store32(&t.n, 0)
