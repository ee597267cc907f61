"""Mapped replies that a client was sent requests with; see mapped_replies.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from gnats.core.messages.reserved cimport MAPPED_N
from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport hash_bytes
from gnats.includes.text cimport put
from gnats.includes.units cimport SECOND

cdef enum:
    FIRST_SLOTS = 16
    MOST_BYTES = 4 * 1024 * 1024   # of a table's replies: some 40,000 of them

# How long a reply is remembered. nats-server: 2 to 4 s.
cdef int64_t LIFETIME = 4 * SECOND


cdef void mapped_clear(MappedReplies *t) noexcept nogil:
    while t.oldest != NULL:
        drop_oldest(t)


cdef inline size_t size_of(const MappedReply *e) noexcept nogil:
    return sizeof(MappedReply) + e.n


cdef MappedReply *find(const MappedReplies *t, uint32_t hash, const char *plain, size_t n) noexcept nogil:
    cdef MappedReply *e = t.slots[hash & t.mask] if t.n else NULL
    while e != NULL and not (
            e.hash == hash and e.n == n + MAPPED_N and memcmp(e.text + MAPPED_N, plain, n) == 0):
        e = e.next
    return e


cdef void unlink_age(MappedReplies *t, MappedReply *e) noexcept nogil:
    if e.older != NULL:
        e.older.newer = e.newer
    else:
        t.oldest = e.newer
    if e.newer != NULL:
        e.newer.older = e.older
    else:
        t.newest = e.older


cdef void link_newest(MappedReplies *t, MappedReply *e) noexcept nogil:
    e.newer = NULL
    e.older = t.newest
    if t.newest != NULL:
        t.newest.newer = e
    else:
        t.oldest = e
    t.newest = e


cdef void drop_oldest(MappedReplies *t) noexcept nogil:
    cdef MappedReply *e = t.oldest
    unlink_age(t, e)
    t.nbytes -= size_of(e)
    chains_remove(as_chains(t), as_chained(e))
    free(e)
    if t.n == 0:
        chains_clear(as_chains(t))


cdef inline bint is_old(const MappedReply *e, int64_t now) noexcept nogil:
    return now - e.when > LIFETIME


cdef void mapped_sweep(MappedReplies *t, int64_t now) noexcept nogil:
    while t.oldest != NULL and is_old(t.oldest, now):
        drop_oldest(t)


cdef const MappedReply *mapped_find(const MappedReplies *t, const Slice *plain, int64_t now) noexcept nogil:
    cdef const MappedReply *e = find(t, hash_bytes(plain.p, plain.n), plain.p, plain.n)
    return e if e != NULL and not is_old(e, now) else NULL


cdef bint mapped_note(MappedReplies *t, const Slice *mapped, int64_t now) noexcept nogil:
    cdef uint32_t hash = hash_bytes(mapped.p + MAPPED_N, mapped.n - MAPPED_N)
    cdef MappedReply *e
    mapped_sweep(t, now)
    e = find(t, hash, mapped.p + MAPPED_N, mapped.n - MAPPED_N)
    if e != NULL:
        unlink_age(t, e)
    else:
        while t.oldest != NULL and t.nbytes > MOST_BYTES:
            drop_oldest(t)
        e = <MappedReply *> malloc(sizeof(MappedReply) + mapped.n)
        if e == NULL:
            return False
        e.hash = hash
        if not chains_add(as_chains(t), as_chained(e), FIRST_SLOTS):
            free(e)
            return False
        e.n = <uint32_t> mapped.n
        t.nbytes += size_of(e)
    put(e.text, mapped.p, mapped.n)
    e.when = now
    link_newest(t, e)
    return True


# ---- for tests ----

cdef class MappedTable:
    """A table; `now` in ns."""
    cdef MappedReplies table

    def __dealloc__(self):
        mapped_clear(&self.table)

    def __len__(self):
        return self.table.n

    @property
    def nbytes(self) -> int:
        return self.table.nbytes

    def note(self, bytes mapped not None, int64_t now) -> None:
        cdef Slice text
        text.p = PyBytes_AS_STRING(mapped)
        text.n = PyBytes_GET_SIZE(mapped)
        if not mapped_note(&self.table, &text, now):
            raise MemoryError

    def find(self, bytes plain not None, int64_t now) -> bytes | None:
        cdef Slice text
        cdef const MappedReply *e
        text.p = PyBytes_AS_STRING(plain)
        text.n = PyBytes_GET_SIZE(plain)
        e = mapped_find(&self.table, &text, now)
        return e.text[:e.n] if e != NULL else None

    def sweep(self, int64_t now) -> None:
        mapped_sweep(&self.table, now)
