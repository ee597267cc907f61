"""Open atomic and fast batches; see batching.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.includes.atomics cimport add32, add64, loadi64
from gnats.includes.times cimport time_after
from gnats.jetstream.state.batchtable cimport BatchTable, OpenBatch, batch_add
from gnats.jetstream.state.streamcore cimport BATCH_ABANDONED, StreamCore

cdef enum:
    MAX_ADVISORIES = 1024    # advisories of a stream that wait for the control loop; further ones are dropped


cdef OpenBatch *open_batch(
    StreamCore s, BatchTable *t, size_t size, const char *id, size_t n, uint64_t per_stream, uint64_t *open,
    uint64_t total, int64_t now
) noexcept nogil:
    cdef OpenBatch *b = NULL
    if t.n >= per_stream:
        return NULL
    if add64(open, 1) < total:
        b = batch_add(t, size, id, n, now)
    if b == NULL:
        add64(open, <uint64_t> -1)
    elif not s.batch_timer_set:
        s.batch_timer_set = True
        s.engine.arm(&s.batch_timer, time_after(now, loadi64(&s.batch_limits.timeout)))
    return b


cdef void advise_abandoned(StreamCore s, AbandonReason why, const char *id, size_t n) noexcept nogil:
    if add32(&s.advisories, 1) >= MAX_ADVISORIES:
        add32(&s.advisories, <uint32_t> -1)
        return
    s.client.inbox.post_jetstream(<void *> s, BATCH_ABANDONED, why, id, n)
