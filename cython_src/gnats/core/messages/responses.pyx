"""Responses that are expected; see responses.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.runtime.quiesce cimport qs_retire
from gnats.core.subjects.subject cimport hash_bytes, same_bytes
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


cdef bint replymap_add(ReplyMap *t, Expected *e) noexcept nogil:
    return chains_add(as_chains(t), as_chained(e), FIRST_SLOTS)


cdef void replymap_remove(ReplyMap *t, Expected *e) noexcept nogil:
    chains_remove(as_chains(t), as_chained(e))


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
    chains_clear(as_chains(t))


cdef bint waiting_add(ReplyMap *t, Expected *e) noexcept nogil:
    cdef Expected *first = replymap_find(t, expected_key(e), e.key_n)
    e.older = first
    e.newer = NULL
    if first == NULL:
        if not replymap_add(t, e):
            return False
    else:
        e.newer = first.newer
        if e.newer != NULL:
            e.newer.older = e
        first.newer = e
    e.linked = 1
    return True


cdef void waiting_remove(ReplyMap *t, Expected *e) noexcept nogil:
    cdef Expected **link
    e.linked = 0
    if e.newer != NULL:
        e.newer.older = e.older
    if e.older != NULL:
        e.older.newer = e.newer
    elif e.newer == NULL:
        replymap_remove(t, e)
    else:   # the next entry takes its place in the bucket
        link = &t.slots[e.hash & t.mask]
        while link[0] != e:
            link = &link[0].next
        e.newer.next = e.next
        link[0] = e.newer


cdef void waiting_free(ReplyMap *t) noexcept nogil:
    cdef Expected *e
    cdef Expected *following
    cdef Expected *same
    cdef uint32_t i
    if t.slots == NULL:
        return
    for i in range(t.mask + 1):
        e = t.slots[i]
        while e != NULL:
            following = e.next
            while e != NULL:
                same = e.newer
                free(e)
                e = same
            e = following
    chains_clear(as_chains(t))


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


cdef void expected_release(Expected *e) noexcept nogil:
    if e != NULL:
        export_release(e.se)
        free(e)
