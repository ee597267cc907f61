"""Message ids that a stream remembers; see dedupe.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from gnats.core.subjects.subject cimport hash_bytes, same_bytes

cdef enum:
    PAGE = 16384         # bytes
    FIRST_SLOTS = 64


cdef inline size_t entry_size(size_t n) noexcept nogil:
    return (sizeof(DedupeEntry) + n + 7) & ~<size_t> 7


cdef uint32_t slot_of(const Dedupe *d, uint32_t hash, const char *id, size_t n) noexcept nogil:
    """Find the slot that an id has, or would get."""
    cdef uint32_t i = hash & d.mask
    cdef DedupeEntry *e
    while True:
        e = d.slots[i]
        if e == NULL or (e.hash == hash and e.n == n and same_bytes(e.id, id, n)):
            return i
        i = (i + 1) & d.mask


cdef bint resize(Dedupe *d, uint32_t nslots) noexcept nogil:
    cdef DedupeEntry **old = d.slots
    cdef uint32_t before = d.mask + 1 if old != NULL else 0
    cdef uint32_t i, at
    cdef DedupeEntry **slots = <DedupeEntry **> calloc(nslots, sizeof(DedupeEntry *))
    if slots == NULL:
        return False
    d.slots = slots
    d.mask = nslots - 1
    for i in range(before):
        if old[i] != NULL:
            at = old[i].hash & d.mask
            while slots[at] != NULL:
                at = (at + 1) & d.mask
            slots[at] = old[i]
    free(old)
    return True


cdef void vacate(Dedupe *d, uint32_t i) noexcept nogil:
    """Empty a slot, and move back the entries that linear probing has put behind it."""
    cdef uint32_t at = i, home
    while True:
        at = (at + 1) & d.mask
        if d.slots[at] == NULL:
            break
        home = d.slots[at].hash & d.mask
        if ((at - home) & d.mask) >= ((at - i) & d.mask):
            d.slots[i] = d.slots[at]
            i = at
    d.slots[i] = NULL
    d.n -= 1


cdef uint64_t dedupe_find(Dedupe *d, const char *id, size_t n) noexcept nogil:
    cdef DedupeEntry *e
    if d.n == 0:
        return 0
    e = d.slots[slot_of(d, hash_bytes(id, n), id, n)]
    return e.seq if e != NULL else 0


cdef DedupeEntry *new_entry(Dedupe *d, size_t size) noexcept nogil:
    cdef DedupePage *page = d.newest
    if page == NULL or page.size - page.end < size:
        page = <DedupePage *> malloc(sizeof(DedupePage) + max(size, <size_t> PAGE))
        if page == NULL:
            return NULL
        page.next = NULL
        page.first = page.end = 0
        page.size = max(size, <size_t> PAGE)
        if d.newest == NULL:
            d.oldest = page
        else:
            d.newest.next = page
        d.newest = page
    page.end += size
    return <DedupeEntry *> (page.data + page.end - size)


cdef bint dedupe_add(Dedupe *d, const char *id, size_t n, uint64_t seq, int64_t ts) noexcept nogil:
    cdef uint32_t i
    cdef DedupeEntry *e
    if d.slots == NULL:
        if not resize(d, FIRST_SLOTS):
            return False
    elif d.n >= d.mask - (d.mask >> 2) and not resize(d, (d.mask + 1) * 2):
        return False
    e = new_entry(d, entry_size(n))
    if e == NULL:
        return False
    e.seq = seq
    e.ts = ts
    e.hash = hash_bytes(id, n)
    e.n = <uint32_t> n
    memcpy(e.id, id, n)
    i = slot_of(d, e.hash, id, n)
    if d.slots[i] == NULL:
        d.n += 1
    d.slots[i] = e
    return True


cdef int64_t dedupe_expire(Dedupe *d, int64_t until) noexcept nogil:
    cdef DedupePage *page
    cdef DedupeEntry *e
    cdef uint32_t i
    while d.oldest != NULL:
        page = d.oldest
        while page.first < page.end:
            e = <DedupeEntry *> (page.data + page.first)
            if e.ts > until:
                return e.ts
            page.first += entry_size(e.n)
            i = slot_of(d, e.hash, e.id, e.n)
            if d.slots[i] == e:   # else the id has been stored again
                vacate(d, i)
        d.oldest = page.next
        if d.oldest == NULL:
            d.newest = NULL
        free(page)
    free(d.slots)
    memset(d, 0, sizeof(Dedupe))
    return 0


cdef void dedupe_forget(Dedupe *d, uint64_t last) noexcept nogil:
    cdef DedupePage *page = d.oldest
    cdef DedupeEntry *e
    cdef size_t at
    cdef uint32_t i
    while page != NULL:
        at = page.first
        while at < page.end:
            e = <DedupeEntry *> (page.data + at)
            at += entry_size(e.n)
            if e.seq > last:
                i = slot_of(d, e.hash, e.id, e.n)
                if d.slots[i] == e:
                    vacate(d, i)
        page = page.next


cdef void dedupe_free(Dedupe *d) noexcept nogil:
    cdef DedupePage *page = d.oldest
    cdef DedupePage *following
    while page != NULL:
        following = page.next
        free(page)
        page = following
    free(d.slots)
    memset(d, 0, sizeof(Dedupe))


cdef class DedupeProbe:
    """A Dedupe alone, for tests."""
    cdef Dedupe d

    def __dealloc__(self):
        dedupe_free(&self.d)

    def __len__(self) -> int:
        return self.d.n

    def find(self, bytes id not None) -> int:
        return dedupe_find(&self.d, PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id))

    def add(self, bytes id not None, uint64_t seq, int64_t ts) -> None:
        if not dedupe_add(&self.d, PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id), seq, ts):
            raise MemoryError

    def expire(self, int64_t until) -> int:
        return dedupe_expire(&self.d, until)

    def forget(self, uint64_t last) -> None:
        dedupe_forget(&self.d, last)
