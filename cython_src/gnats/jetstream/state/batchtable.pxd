"""A stream's open atomic or fast batches, by id and by the time of their last message; the limits of a server.

A BatchTable has no lock of its own: its stream's lock is held. The fields of BatchLimits are atomic.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    MAX_BATCH_ID = 64    # bytes


# The head of an AtomicBatch and of a FastBatch.
cdef struct OpenBatch:
    OpenBatch *next      # core.runtime.hash_table needs next and hash first
    uint32_t hash
    uint32_t id_n
    OpenBatch *older     # in the order of `heard`
    OpenBatch *newer
    int64_t heard        # monotonic ns when its last message came
    char id[MAX_BATCH_ID]


# A zeroed table is empty.
cdef struct BatchTable:
    OpenBatch **slots    # core.runtime.hash_table needs slots, mask and n first
    uint32_t mask
    uint32_t n
    OpenBatch *oldest
    OpenBatch *newest


cdef class BatchLimits:
    """One server's limits of atomic and fast batches, and the counts that its streams share. All fields are atomic."""
    cdef int64_t timeout                     # ns without a message after which a batch is abandoned
    cdef uint64_t max_size                   # the most messages of an atomic batch
    cdef uint64_t atomic_per_stream, atomic_total, fast_per_stream, fast_total    # the most that may be open
    cdef uint64_t atomic_open, fast_open     # open now, in all streams
    cdef uint64_t kept                       # bytes of staged messages of atomic batches, in all streams


# Return the open batch with an id, or NULL.
cdef OpenBatch *batch_find(const BatchTable *t, const char *id, size_t n) noexcept nogil
# Make a struct of `size` bytes, zeroed behind its OpenBatch, and add it. The id is not in the table yet, and has at
# most MAX_BATCH_ID bytes. now: monotonic ns. NULL when out of memory.
cdef OpenBatch *batch_add(BatchTable *t, size_t size, const char *id, size_t n, int64_t now) noexcept nogil
# Note that a message of the batch has come.
cdef void batch_touch(BatchTable *t, OpenBatch *b, int64_t now) noexcept nogil
# Remove a batch from the table; the caller frees it. Removing the last batch frees the table's memory.
cdef void batch_remove(BatchTable *t, OpenBatch *b) noexcept nogil
