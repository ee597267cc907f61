"""Open an atomic or a fast batch within the limits, and advise of abandoned atomic batches (jetstream_batching.go).

The stream's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.jetstream.state.batchtable cimport BatchTable, OpenBatch
from gnats.jetstream.state.streamcore cimport StreamCore

cpdef enum AbandonReason:
    # `b` of a BATCH_ABANDONED event
    ABANDONED_TIMEOUT = 0
    ABANDONED_LARGE = 1
    ABANDONED_INCOMPLETE = 2
    ABANDONED_UNSUPPORTED = 3


# Add a struct of `size` bytes that begins with an OpenBatch to a table of the stream. NULL when the stream has
# per_stream of them or the server `total`, or out of memory. open: the server's count, atomic. now: monotonic ns.
cdef OpenBatch *open_batch(StreamCore s, BatchTable *t, size_t size, const char *id, size_t n, uint64_t per_stream,
                           uint64_t *open, uint64_t total, int64_t now) noexcept nogil
# Have the control loop publish an advisory about an atomic batch that is abandoned.
cdef void advise_abandoned(StreamCore s, AbandonReason why, const char *id, size_t n) noexcept nogil
