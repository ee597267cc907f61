"""The open batches of a stream; see batchtable.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.subjects.subject cimport hash_bytes, same_bytes
from gnats.includes.atomics cimport load64, loadi64, store64, storei64
from gnats.includes.units cimport SECOND

cdef enum:
    FIRST_SLOTS = 8


cdef class BatchLimits:
    """The limits of one server's atomic and fast batches, and the number of open ones in all its streams.

    The limits are nats-server's defaults until set().
    """

    def __cinit__(self):
        self.set()

    def set(self, *, int64_t per_stream=0, int64_t total=0, int64_t size=0, int64_t timeout=0) -> None:
        """Set the limits for messages from now on; a limit of 0 or less means nats-server's default.

        `per_stream` and `total`: batches open at the same time; `size`: messages of an atomic batch; `timeout`: ns
        without a message after which a batch is abandoned.
        """
        store64(&self.atomic_per_stream, per_stream if per_stream > 0 else 50)
        store64(&self.fast_per_stream, per_stream if per_stream > 0 else 1000)
        store64(&self.atomic_total, total if total > 0 else 1000)
        store64(&self.fast_total, total if total > 0 else 50000)
        store64(&self.max_size, size if size > 0 else 1000)
        storei64(&self.timeout, timeout if timeout > 0 else 10 * SECOND)

    def get(self) -> dict:
        """Return the limits by name."""
        return {
            "atomic_per_stream": load64(&self.atomic_per_stream), "atomic_total": load64(&self.atomic_total),
            "fast_per_stream": load64(&self.fast_per_stream), "fast_total": load64(&self.fast_total),
            "max_size": load64(&self.max_size), "timeout": loadi64(&self.timeout),
        }

    @property
    def atomic_open(self) -> int:
        """The number of open atomic batches."""
        return load64(&self.atomic_open)

    @property
    def fast_open(self) -> int:
        """The number of open fast batches."""
        return load64(&self.fast_open)

    @property
    def kept(self) -> int:
        """Bytes of messages of atomic batches that wait for their commit."""
        return load64(&self.kept)


cdef OpenBatch *batch_find(const BatchTable *t, const char *id, size_t n) noexcept nogil:
    cdef OpenBatch *b
    cdef uint32_t hash
    if t.n == 0:
        return NULL
    hash = hash_bytes(id, n)
    b = t.slots[hash & t.mask]
    while b != NULL and not (b.hash == hash and b.id_n == n and same_bytes(b.id, id, n)):
        b = b.next
    return b


cdef OpenBatch *batch_add(BatchTable *t, size_t size, const char *id, size_t n, int64_t now) noexcept nogil:
    cdef OpenBatch *b = <OpenBatch *> calloc(1, size)
    if b == NULL:
        return NULL
    b.hash = hash_bytes(id, n)
    b.id_n = <uint32_t> n
    memcpy(b.id, id, n)
    if not chains_add(as_chains(t), as_chained(b), FIRST_SLOTS):
        free(b)
        return NULL
    b.heard = now
    link_newest(t, b)
    return b


cdef inline void link_newest(BatchTable *t, OpenBatch *b) noexcept nogil:
    b.newer = NULL
    b.older = t.newest
    if t.newest == NULL:
        t.oldest = b
    else:
        t.newest.newer = b
    t.newest = b


cdef inline void unlink(BatchTable *t, OpenBatch *b) noexcept nogil:
    if b.older == NULL:
        t.oldest = b.newer
    else:
        b.older.newer = b.newer
    if b.newer == NULL:
        t.newest = b.older
    else:
        b.newer.older = b.older


cdef void batch_touch(BatchTable *t, OpenBatch *b, int64_t now) noexcept nogil:
    b.heard = now
    if t.newest != b:
        unlink(t, b)
        link_newest(t, b)


cdef void batch_remove(BatchTable *t, OpenBatch *b) noexcept nogil:
    chains_remove(as_chains(t), as_chained(b))
    unlink(t, b)
    if t.n == 0:
        chains_clear(as_chains(t))


cdef class BatchTableProbe:
    """A BatchTable alone, for tests."""
    cdef BatchTable t

    def __dealloc__(self):
        cdef OpenBatch *b
        while self.t.oldest != NULL:
            b = self.t.oldest
            batch_remove(&self.t, b)
            free(b)

    def __len__(self) -> int:
        return self.t.n

    def __contains__(self, bytes id not None) -> bool:
        return batch_find(&self.t, PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id)) != NULL

    def add(self, bytes id not None, int64_t now) -> None:
        if batch_add(&self.t, sizeof(OpenBatch), PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id), now) == NULL:
            raise MemoryError

    def touch(self, bytes id not None, int64_t now) -> None:
        batch_touch(&self.t, batch_find(&self.t, PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id)), now)

    def remove(self, bytes id not None) -> None:
        cdef OpenBatch *b = batch_find(&self.t, PyBytes_AS_STRING(id), PyBytes_GET_SIZE(id))
        batch_remove(&self.t, b)
        free(b)

    def ages(self) -> list:
        """Return (id, time of the last message), the oldest first."""
        cdef OpenBatch *b = self.t.oldest
        cdef list out = []
        while b != NULL:
            out.append((b.id[:b.id_n], b.heard))
            b = b.newer
        return out
