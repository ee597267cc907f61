"""The open batches of a stream, by id and by when they were heard of last, and how many a server may have.

No lock of its own: a table is its stream's. The counters of BatchLimits are atomic.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    MAX_BATCH_ID = 64    # bytes


# What an atomic and a fast batch begin with.
cdef struct OpenBatch:
    OpenBatch *next      # begins as core.chains wants it
    uint32_t hash
    uint32_t id_n
    OpenBatch *older     # by when they were heard of
    OpenBatch *newer
    int64_t heard        # monotonic ns
    char id[MAX_BATCH_ID]


# All zero: empty.
cdef struct BatchTable:
    OpenBatch **slots    # begins as core.chains wants it
    uint32_t mask
    uint32_t n
    OpenBatch *oldest
    OpenBatch *newest


cdef class BatchLimits:
    """The limits of one server's batches, and what its streams have open of them. All is atomic."""
    cdef int64_t timeout                     # ns that a batch may be silent
    cdef uint64_t max_size                   # messages of an atomic batch
    cdef uint64_t atomic_per_stream, atomic_total, fast_per_stream, fast_total
    cdef uint64_t atomic_open, fast_open
    cdef uint64_t kept                       # bytes that atomic batches wait with


cdef OpenBatch *batch_find(const BatchTable *t, const char *id, size_t n) noexcept nogil
# Put in a batch of `size` bytes, zeroed, whose id is not there and not too long; NULL when out of memory.
cdef OpenBatch *batch_add(BatchTable *t, size_t size, const char *id, size_t n, int64_t now) noexcept nogil
# It has been heard of.
cdef void batch_touch(BatchTable *t, OpenBatch *b, int64_t now) noexcept nogil
# Take it out; the caller frees it. The last one takes the table's memory with it.
cdef void batch_remove(BatchTable *t, OpenBatch *b) noexcept nogil
