"""Reply subjects that a client may publish to; see replies.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.subjects.subject cimport hash_bytes

cdef enum:
    FIRST_SLOTS = 16


cdef ReplyTable *replies_new(int64_t most, int64_t expires) noexcept nogil:
    cdef ReplyTable *t = <ReplyTable *> calloc(1, sizeof(ReplyTable))
    if t != NULL:
        t.most = most
        t.expires = expires
    return t


cdef void replies_free(ReplyTable *t) noexcept nogil:
    cdef Reply *e
    if t == NULL:
        return
    while t.oldest != NULL:
        e = t.oldest
        t.oldest = e.newer
        free(e)
    free(t.slots)
    free(t)


cdef Reply *find(ReplyTable *t, uint32_t hash, const char *subject, size_t n) noexcept nogil:
    cdef Reply *e = t.slots[hash & t.mask] if t.n else NULL
    while e != NULL and not (e.hash == hash and e.len == n and memcmp(e.subject, subject, n) == 0):
        e = e.next
    return e


cdef void drop(ReplyTable *t, Reply *e) noexcept nogil:
    if e.older != NULL:
        e.older.newer = e.newer
    else:
        t.oldest = e.newer
    if e.newer != NULL:
        e.newer.older = e.older
    else:
        t.newest = e.older
    chains_remove(as_chains(t), as_chained(e))
    free(e)
    if t.n == 0:
        chains_clear(as_chains(t))


cdef bint use(ReplyTable *t, uint32_t hash, const char *subject, size_t n, int64_t now) noexcept nogil:
    cdef Reply *e = find(t, hash, subject, n)
    if e == NULL:
        return False
    if t.expires > 0 and now - e.when > t.expires:
        drop(t, e)
        return False
    e.used += 1
    if t.most > 0 and e.used >= t.most:
        drop(t, e)
    return True


cdef bint replies_use(ReplyTable *t, const char *subject, size_t n, int64_t now) noexcept nogil:
    return t.n > 0 and use(t, hash_bytes(subject, n), subject, n, now)


cdef bint replies_note(ReplyTable *t, const char *subject, size_t n, int64_t now) noexcept nogil:
    cdef uint32_t hash = hash_bytes(subject, n)
    cdef Reply *e
    if use(t, hash, subject, n, now):
        return True
    while t.oldest != NULL and t.expires > 0 and now - t.oldest.when > t.expires:
        drop(t, t.oldest)
    e = <Reply *> malloc(sizeof(Reply) + n)
    if e == NULL:
        return False
    e.hash = hash
    if not chains_add(as_chains(t), as_chained(e), FIRST_SLOTS):
        free(e)
        return False
    e.when = now
    e.used = 0
    e.len = <uint32_t> n
    memcpy(e.subject, subject, n)
    e.newer = NULL
    e.older = t.newest
    if t.newest != NULL:
        t.newest.newer = e
    else:
        t.oldest = e
    t.newest = e
    return True


cdef class Replies:
    """A table for tests; `now` and `expires` in ns."""
    cdef ReplyTable *table

    def __cinit__(self, int64_t most, int64_t expires):
        self.table = replies_new(most, expires)
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        replies_free(self.table)

    def __len__(self):
        return self.table.n

    def note(self, bytes subject not None, int64_t now) -> None:
        if not replies_note(self.table, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), now):
            raise MemoryError

    def use(self, bytes subject not None, int64_t now) -> bool:
        return replies_use(self.table, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), now)
