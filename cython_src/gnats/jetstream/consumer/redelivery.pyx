"""Deliver messages again without an acknowledgement; see redelivery.pxd."""
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_after, time_before
from gnats.jetstream.consumer.acked cimport Acked, acked_add, acked_free, acked_init, acked_sort
from gnats.jetstream.consumer.consumerentry cimport ENTRY_APPLIED, OP_FORGOTTEN
from gnats.jetstream.consumer.consumerstate cimport (
    CONSUMER_MAX_DELIVERIES,
    ConsumerState,
    notify,
    propose_of,
    restart_wait,
    update_delivered,
)
from gnats.jetstream.consumer.pending cimport (
    QUEUED,
    DeliveredMsg,
    pending_earliest,
    pending_enqueue,
    pending_find,
    pending_first,
    pending_next,
    pending_set_deadline,
)
from gnats.jetstream.consumer.settings cimport has_ack_wait, wait_of

cdef int64_t MIN_WAIT = 1000000    # ns, the shortest ack wait


cdef void move_ack_floor(ConsumerState o, uint64_t dseq, uint64_t sseq) noexcept nogil:
    cdef DeliveredMsg *e = pending_first(&o.stored.pending)
    if e == NULL:
        o.adflr = o.dseq - 1
        o.asflr = o.sseq - 1
    elif dseq == o.adflr + 1:
        o.adflr = dseq
        o.asflr = sseq
        # Only after a reset can messages below the floor be pending.
        while e != NULL and e.seq <= sseq:
            e = pending_next(&o.stored.pending, e)
        if e != NULL and e.dseq:
            o.adflr = e.dseq - 1
            o.asflr = e.seq - 1


cdef bint has_max_deliveries(ConsumerState o, const DeliveredMsg *e, int64_t wall) noexcept nogil:
    """Return whether a pending message has had max_deliver deliveries. If so, it is not pending any more."""
    cdef uint64_t dc = <uint64_t> e.rdc if e.rdc > 0 else 1
    if o.cfg.max_deliver == 0 or dc < o.cfg.max_deliver:
        return False
    if dc == o.cfg.max_deliver:
        notify(o, CONSUMER_MAX_DELIVERIES, e.seq, 0, dc, 0, NULL, 0)
    give_up(o, e, dc + 1, wall)
    return True


cdef void give_up(ConsumerState o, const DeliveredMsg *e, uint64_t dc, int64_t wall) noexcept nogil:
    cdef uint64_t sseq = e.seq, dseq = e.dseq
    if update_delivered(o, dseq, sseq, dc, e.ts, wall) == ENTRY_APPLIED:
        move_ack_floor(o, dseq, sseq)


cdef int64_t next_deadline(ConsumerState o, int64_t start, const DeliveredMsg *e) noexcept nogil:
    return time_after(start, max(wait_of(&o.cfg, e.rdc), MIN_WAIT))


cdef bint check_pending(ConsumerState o, int64_t wall) noexcept nogil:
    cdef DeliveredMsg *e = pending_earliest(&o.stored.pending)
    cdef uint64_t first, seq
    cdef Acked expired
    if e == NULL or e.deadline > wall or not has_ack_wait(&o.cfg):
        return o.stored.pending.nqueued != 0
    # Messages that are removed after this look at the store are noticed when they are delivered again.
    pthread_mutex_lock(&o.store.lock)
    first = o.store.first_seq
    pthread_mutex_unlock(&o.store.lock)
    acked_init(&expired)
    while e != NULL and e.deadline <= wall:
        seq = e.seq
        if seq < first or seq <= o.asflr:
            o.asflr = max(o.asflr, seq)
            o.adflr = max(o.adflr, e.dseq)
            propose_of(o, OP_FORGOTTEN, seq)
        elif e.flags & QUEUED:
            pending_set_deadline(&o.stored.pending, e, INT64_MAX)
        elif not has_max_deliveries(o, e, wall):
            # Move it behind the others in the heap, until expire_entries() has all of them.
            pending_set_deadline(&o.stored.pending, e, next_deadline(o, wall, e))
            if not acked_add(&expired, seq):
                break   # out of memory: the others later
        e = pending_earliest(&o.stored.pending)
    expire_entries(o, &expired, wall)
    acked_free(&expired)
    if o.stored.pending.n == 0:
        o.adflr = o.dseq - 1
        o.asflr = o.sseq - 1
    return o.stored.pending.nqueued != 0


cdef void force_expire_pending(ConsumerState o, int64_t wall) noexcept nogil:
    cdef Acked expired
    cdef DeliveredMsg *e = pending_first(&o.stored.pending)
    cdef DeliveredMsg *following
    acked_init(&expired)
    while e != NULL:
        following = pending_next(&o.stored.pending, e)
        if not e.flags & QUEUED and not has_max_deliveries(o, e, wall) and not acked_add(&expired, e.seq):
            break
        e = following
    expire_entries(o, &expired, wall)
    acked_free(&expired)


cdef void expire_entries(ConsumerState o, Acked *expired, int64_t wall) noexcept nogil:
    """Queue pending messages for redelivery, in the order of the stream.

    Queued messages have no deadline. Their ack wait begins anew with their redelivery.
    """
    cdef const DeliveredMsg *e
    cdef int64_t off = 0
    cdef size_t i
    acked_sort(expired)
    for i in range(expired.n):
        pending_enqueue(&o.stored.pending, expired.seqs[i])
        e = pending_find(&o.stored.pending, expired.seqs[i])
        if i == 0:
            off = time_before(wall, e.ts)
        restart_wait(o, e.seq, time_after(e.ts, off), False)
