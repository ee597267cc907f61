"""Batches of a stream, of both kinds (batching of jetstream_batching.go): whether another may be opened.

What publishers are not told of an atomic batch that is given up, an advisory tells. The stream's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.jetstream.batchtable cimport BatchTable, OpenBatch
from gnats.jetstream.streamcore cimport StreamCore

cpdef enum AbandonReason:
    # BATCH_ABANDONED's b
    ABANDONED_TIMEOUT = 0
    ABANDONED_LARGE = 1
    ABANDONED_INCOMPLETE = 2
    ABANDONED_UNSUPPORTED = 3


# A new batch of `size` bytes in a table of the stream; NULL when there are too many. `open` counts those of the server.
cdef OpenBatch *open_batch(StreamCore s, BatchTable *t, size_t size, const char *id, size_t n, uint64_t per_stream,
                           uint64_t *open, uint64_t total, int64_t now) noexcept nogil
# Publish an advisory about a batch that is given up.
cdef void advise_abandoned(StreamCore s, AbandonReason why, const char *id, size_t n) noexcept nogil
