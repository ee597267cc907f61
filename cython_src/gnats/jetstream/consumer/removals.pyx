"""Note which messages a consumer's stream has removed; see removals.pxd."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.subjects.subject cimport subject_is_subset_match
from gnats.includes.atomics cimport load64, store64
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.jetstream.consumer.consumeracks cimport process_deleted
from gnats.jetstream.consumer.consumerentry cimport OP_FORGOTTEN, OP_MOVED, OP_RESET
from gnats.jetstream.consumer.consumerstate cimport (
    ConsumerState,
    kick,
    lowest_pending,
    propose_of,
    propose_position,
    stream_num_pending,
)
from gnats.jetstream.consumer.pending cimport (
    PENDING,
    DeliveredMsg,
    pending_find,
    pending_first,
    pending_needs,
    pending_next,
    pending_pop,
    pending_set_deadline,
)
from gnats.jetstream.consumer.redelivery cimport next_deadline
from gnats.jetstream.consumer.settings cimport POLICY_EXPLICIT
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.store.base cimport STORE_DELETED, STORE_NOT_FOUND, StoreMsg
from gnats.store.index.filter cimport filter_match


cdef bint on_need_ack(ConsumerBase base, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
    return need_ack(<ConsumerState> base, sseq, subject, n)


cdef bint need_ack(ConsumerState o, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
    cdef bint need
    pthread_mutex_lock(&o.lock)
    need = not o.closed and filter_match(o.filter, subject, n) and pending_needs(
        &o.stored.pending, sseq, o.asflr, o.sseq, o.cfg.ack_policy == POLICY_EXPLICIT)
    pthread_mutex_unlock(&o.lock)
    return need


cdef bint on_count_off(ConsumerBase base, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
    return count_off(<ConsumerState> base, sseq, subject, n)


cdef inline bint count_off(ConsumerState o, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
    if sseq < o.ahead:
        if o.looks_ahead:
            o.thinned = True
        return sseq >= load64(&o.low)
    # A message that its own storing removes is counted off before it is counted.
    if sseq != o.counted_off and (n == 0 or filter_match(o.filter, subject, n)):
        o.npc -= 1
        o.counted_off = sseq   # a message that passes several filters counts once
    return False


cdef void on_removed(ConsumerBase base, uint64_t sseq) noexcept nogil:
    removed(<ConsumerState> base, sseq)


cdef void removed(ConsumerState o, uint64_t sseq) noexcept nogil:
    cdef DeliveredMsg *e
    cdef uint64_t low
    cdef bint signal = False
    # Both may have moved since count_off(), but only past a message that is not pending: it is not looked up again.
    if sseq < load64(&o.low) or sseq >= load64(&o.ahead):
        return
    pthread_mutex_lock(&o.lock)
    if not o.closed:
        e = pending_find(&o.stored.pending, sseq)
        if e != NULL and e.flags & PENDING:
            process_deleted(o, sseq, e.dseq, <uint64_t> max(e.rdc, <int64_t> 1), realtime_ns(), &signal)
        elif e != NULL:
            propose_of(o, OP_FORGOTTEN, sseq)
        low = lowest_pending(o)
        if low > o.low:
            store64(&o.low, low)
        if signal or o.proposals.used:
            kick(o)   # under the lock, so that a closed consumer is never kicked
    pthread_mutex_unlock(&o.lock)


cdef void on_purged(
    ConsumerBase base, uint64_t first, uint64_t last, const char *subject, uint32_t n, uint64_t subject_first
) noexcept nogil:
    purged(<ConsumerState> base, first, last, subject, n, subject_first)


cdef void purged(
    ConsumerState o, uint64_t first, uint64_t last, const char *subject, uint32_t n, uint64_t subject_first
) noexcept nogil:
    cdef uint64_t start = first
    cdef bint ours = True, wider = False
    pthread_mutex_lock(&o.lock)
    if n and is_equal_or_subset_match(o, subject, n):
        start = subject_first
    elif n:
        ours = wider = filter_match(o.filter, subject, n)
    if not o.closed:
        if ours:
            purge(o, last + 1 if start == 0 and not wider else start, wider)
        stream_num_pending(o)
        kick(o)   # what max_ack_pending held back may be delivered, and deadlines have changed
    pthread_mutex_unlock(&o.lock)


cdef bint is_equal_or_subset_match(ConsumerState o, const char *subject, uint32_t n) noexcept nogil:
    """Return whether the subject, which may have wildcards, covers all of the filters. False without a filter."""
    cdef uint32_t i
    if o.filter == NULL:
        return False
    for i in range(o.filter.n):
        if not subject_is_subset_match(o.filter.subjects[i].at, o.filter.subjects[i].n, subject, n):
            return False
    return True


cdef void purge(ConsumerState o, uint64_t first, bint wider) noexcept nogil:
    """Forget messages that a purge has removed: those below `first`. wider: the filters are wider than the purged
    subject, so look up each message that is still pending as well."""
    cdef DeliveredMsg *e = pending_first(&o.stored.pending)
    cdef DeliveredMsg *following
    cdef StoreMsg sm
    cdef int64_t wall = realtime_ns()
    cdef uint64_t seq
    cdef int rc
    cdef bint gone
    if o.sseq < first:
        o.sseq = first
    if o.asflr < first:
        o.asflr = first - 1
        while e != NULL:
            following = pending_next(&o.stored.pending, e)
            seq = e.seq
            gone = seq <= o.asflr
            if not gone and wider:
                pthread_mutex_lock(&o.store.lock)
                rc = o.store.load(seq, &sm)
                pthread_mutex_unlock(&o.store.lock)
                # a message that cannot be read now is still there
                gone = rc == STORE_NOT_FOUND or rc == STORE_DELETED
            if gone:
                o.adflr = max(o.adflr, e.dseq)
                o.dseq = max(o.dseq, o.adflr)
                propose_of(o, OP_FORGOTTEN, seq)
                o.lat = wall
            e = following
    if o.stored.pending.n == 0:
        o.adflr = o.dseq - 1
        o.asflr = o.sseq - 1
    while o.stored.pending.nqueued:
        e = pending_find(&o.stored.pending, pending_pop(&o.stored.pending))
        if e != NULL and e.flags & PENDING:
            pending_set_deadline(&o.stored.pending, e, next_deadline(o, wall, e))   # redelivered when that ends
    propose_position(o, OP_MOVED if o.stored.pending.n else OP_RESET)
