"""Abandon silent atomic and fast batches; see batchtimer.pxd."""
from libc.stdint cimport INT64_MAX, int64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.includes.atomics cimport loadi64
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_after, time_before
from gnats.jetstream.batch.atomicbatch cimport drop_atomic_batch
from gnats.jetstream.batch.batching cimport ABANDONED_TIMEOUT, advise_abandoned
from gnats.jetstream.batch.fastbatch cimport drop_fast_batch
from gnats.jetstream.state.batchtable cimport OpenBatch
from gnats.jetstream.state.streamcore cimport StreamCore

cdef enum:
    AT_ONCE = 64         # batches of each kind that one call of the timer abandons


cdef void abandon_batches(void *owner, PollState *ps) noexcept nogil:
    pthread_mutex_lock(&(<StreamCore> owner).store.lock)
    abandon_silent(<StreamCore> owner, loadi64(&(<StreamCore> owner).batch_limits.timeout))
    pthread_mutex_unlock(&(<StreamCore> owner).store.lock)


cdef void abandon_silent(StreamCore s, int64_t timeout) noexcept nogil:
    """Abandon batches silent for `timeout` ns, AT_ONCE of each kind at most; arm the timer for the others."""
    cdef int64_t since = time_before(monotonic_ns(), timeout)
    cdef int64_t oldest = INT64_MAX
    cdef OpenBatch *b
    cdef int _
    for _ in range(AT_ONCE):
        b = s.atomic_batches.oldest
        if b == NULL or b.heard > since:
            break
        advise_abandoned(s, ABANDONED_TIMEOUT, b.id, b.id_n)
        drop_atomic_batch(s, b)
    for _ in range(AT_ONCE):
        b = s.fast_batches.oldest
        if b == NULL or b.heard > since:
            break
        drop_fast_batch(s, b)
    if s.atomic_batches.oldest != NULL:
        oldest = s.atomic_batches.oldest.heard
    if s.fast_batches.oldest != NULL:
        oldest = min(oldest, s.fast_batches.oldest.heard)
    s.batch_timer_set = oldest != INT64_MAX
    if s.batch_timer_set:
        s.engine.arm(&s.batch_timer, time_after(oldest, timeout))
