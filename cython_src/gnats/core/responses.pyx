"""Responses that are expected; see responses.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from gnats.core.quiesce cimport qs_retire
from gnats.core.subject cimport hash_bytes, same_bytes
from gnats.includes.atomics cimport addi64_seq

cdef enum:
    FIRST_SLOTS = 16


cdef Expected *expected_new(
    const char *key, size_t kn, const char *other, size_t on, const char *header, size_t hn
) noexcept nogil:
    cdef Expected *e = <Expected *> malloc(sizeof(Expected) + kn + on + hn)
    if e == NULL:
        return NULL
    memset(e, 0, sizeof(Expected))
    e.hash = hash_bytes(key, kn)
    e.key_n = <uint32_t> kn
    e.other_n = <uint32_t> on
    e.header_n = <uint32_t> hn
    memcpy(e.data, key, kn)
    memcpy(e.data + kn, other, on)
    if hn:
        memcpy(e.data + kn + on, header, hn)
    return e


cdef Expected *replymap_find(ReplyMap *t, const char *key, size_t n) noexcept nogil:
    cdef Expected *e
    cdef uint32_t hash
    if t.n == 0:
        return NULL
    hash = hash_bytes(key, n)
    e = t.slots[hash & t.mask]
    while e != NULL:
        if e.hash == hash and e.key_n == n and same_bytes(e.data, key, n):
            return e
        e = e.next
    return NULL


cdef Expected *replymap_next(Expected *e) noexcept nogil:
    cdef Expected *other = e.next
    while other != NULL:
        if other.hash == e.hash and other.key_n == e.key_n and same_bytes(other.data, e.data, e.key_n):
            return other
        other = other.next
    return NULL


cdef bint resize(ReplyMap *t, uint32_t slots) noexcept nogil:
    cdef Expected **fresh = <Expected **> calloc(slots, sizeof(Expected *))
    cdef Expected *e
    cdef Expected *following
    cdef uint32_t i
    if fresh == NULL:
        return False
    if t.slots != NULL:
        for i in range(t.mask + 1):
            e = t.slots[i]
            while e != NULL:
                following = e.next
                e.next = fresh[e.hash & (slots - 1)]
                fresh[e.hash & (slots - 1)] = e
                e = following
        free(t.slots)
    t.slots = fresh
    t.mask = slots - 1
    return True


cdef bint replymap_add(ReplyMap *t, Expected *e) noexcept nogil:
    if t.slots == NULL:
        if not resize(t, FIRST_SLOTS):
            return False
    elif t.n > t.mask:
        resize(t, (t.mask + 1) * 2)   # without memory the chains only get longer
    e.next = t.slots[e.hash & t.mask]
    t.slots[e.hash & t.mask] = e
    t.n += 1
    return True


cdef void replymap_remove(ReplyMap *t, Expected *e) noexcept nogil:
    cdef Expected **link = &t.slots[e.hash & t.mask]
    while link[0] != e:
        link = &link[0].next
    link[0] = e.next
    t.n -= 1
    if t.mask >= 256 and t.n < t.mask // 8:
        resize(t, (t.mask + 1) // 4)


cdef void replymap_free(ReplyMap *t) noexcept nogil:
    cdef Expected *e
    cdef uint32_t i
    if t.slots == NULL:
        return
    for i in range(t.mask + 1):
        while t.slots[i] != NULL:
            e = t.slots[i]
            t.slots[i] = e.next
            if e.se != NULL:
                export_release(e.se)
            free(e)
    free(t.slots)
    t.slots = NULL
    t.mask = t.n = 0


cdef inline size_t expected_size(const Expected *e) noexcept nogil:
    return sizeof(Expected) + <size_t> e.key_n + e.other_n + e.header_n


cdef void queue_push(Queue *q, Expected *e) noexcept nogil:
    e.queue = q
    e.newer = NULL
    e.older = q.newest
    if q.newest != NULL:
        q.newest.newer = e
    else:
        q.oldest = e
    q.newest = e
    q.n += 1
    q.bytes += expected_size(e)


cdef void queue_drop(Expected *e) noexcept nogil:
    cdef Queue *q = e.queue
    if q == NULL:
        return
    if e.older != NULL:
        e.older.newer = e.newer
    else:
        q.oldest = e.newer
    if e.newer != NULL:
        e.newer.older = e.older
    else:
        q.newest = e.older
    q.n -= 1
    q.bytes -= expected_size(e)
    e.queue = NULL


cdef ServiceExport *export_hold(ServiceExport *se) noexcept nogil:
    addi64_seq(&se.refs, 1)
    return se


cdef void export_release(ServiceExport *se) noexcept nogil:
    if addi64_seq(&se.refs, -1) == 1:
        qs_retire(se)
