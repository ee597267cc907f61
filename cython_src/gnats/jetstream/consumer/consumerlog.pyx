"""Apply proposed entries of a consumer at once; see consumerlog.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport malloc

from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_after
from gnats.jetstream.consumer.acked cimport Acked, acked_add, acked_free, acked_init, acked_reserve
from gnats.jetstream.consumer.consumerentry cimport (
    ACKED_ALL,
    ACKED_ONE,
    ENTRY_APPLIED,
    ENTRY_REFUSED,
    ENTRY_UNKNOWN,
    OP_ACKED,
    OP_DELIVERED,
    OP_FORGOTTEN,
    OP_MOVED,
    OP_RESET,
    OP_RETURNED,
    OP_WAITS,
    ConsumerEntry,
    ConsumerOutcome,
)
from gnats.jetstream.consumer.consumerstate cimport POLICY_NONE, ConsumerState, mark_dirty, wait_of
from gnats.jetstream.consumer.pending cimport (
    PENDING,
    QUEUED,
    DeliveredMsg,
    pending_add,
    pending_find,
    pending_first,
    pending_forget,
    pending_free,
    pending_next,
    pending_reserve,
    pending_set_deadline,
    pending_set_rdc,
    pending_track,
    pending_untrack,
)
from gnats.store.format.codec cimport MAX_POSITION, ConsumerSnapshot, PendingEntry, RedeliveredEntry

cdef int64_t MOST_REDELIVERIES = <int64_t> 1 << 32    # that a restored message is taken to have


cdef inline ConsumerOutcome store_delivered(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    cdef DeliveredMsg *d = NULL
    if o.cfg.ack_policy != POLICY_NONE:
        d = find_or_add(o, e.sseq)
        if d == NULL:
            return ENTRY_REFUSED
    mark_dirty(o)
    if e.dseq > o.floor.consumer:
        if e.dseq > o.delivered.consumer:
            o.delivered.consumer = e.dseq
        if e.sseq > o.delivered.stream:
            o.delivered.stream = e.sseq
        if o.cfg.ack_policy == POLICY_NONE:
            o.floor = o.delivered
    if d == NULL:
        return ENTRY_APPLIED
    if <int64_t> e.dc - 1 > d.rdc:
        pending_set_rdc(&o.pending, d, <int64_t> e.dc - 1)
    if o.cfg.max_deliver and e.dc > o.cfg.max_deliver:
        pending_untrack(&o.pending, d)   # keeps its count: need_ack() still wants the message
    else:
        pending_track(&o.pending, d, e.dseq, e.ts, time_after(e.ts, wait_of(o, d.rdc)))
    return ENTRY_APPLIED


cdef inline DeliveredMsg *find_or_add(ConsumerState o, uint64_t sseq) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&o.pending, sseq)
    if d == NULL and pending_reserve(&o.pending):
        d = pending_add(&o.pending, sseq)
    return d


cdef inline ConsumerOutcome store_wait(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&o.pending, e.sseq)
    if d == NULL or not d.flags & PENDING:
        return ENTRY_UNKNOWN
    d.ts = e.ts
    # The wait of a queued message begins with its delivery.
    pending_set_deadline(
        &o.pending, d, INT64_MAX if d.flags & QUEUED else time_after(e.ts, wait_of(o, d.rdc)))
    mark_dirty(o)
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_returned(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&o.pending, e.sseq)
    if d == NULL:
        return ENTRY_UNKNOWN
    pending_set_rdc(&o.pending, d, d.rdc - 1)
    mark_dirty(o)
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_acked_one(ConsumerState o, const ConsumerEntry *e, Acked *acked) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&o.pending, e.sseq)
    cdef const DeliveredMsg *first
    cdef uint64_t dseq
    cdef bint was_pending
    if acked != NULL and not acked_add(acked, e.sseq):
        return ENTRY_REFUSED
    mark_dirty(o)
    if d == NULL:
        return ENTRY_UNKNOWN
    dseq = d.dseq
    was_pending = d.flags & PENDING
    pending_forget(&o.pending, d)
    if not was_pending:
        return ENTRY_UNKNOWN
    if dseq <= o.floor.consumer:
        return ENTRY_APPLIED
    first = pending_first(&o.pending)
    if first == NULL:
        o.floor = o.delivered
    elif dseq == o.floor.consumer + 1:
        o.floor.consumer = dseq
        o.floor.stream = e.sseq
        if first.seq > e.sseq and first.dseq:
            o.floor.consumer = first.dseq - 1
            o.floor.stream = first.seq - 1
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_acked_all(ConsumerState o, const ConsumerEntry *e, Acked *acked) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&o.pending, e.sseq)
    cdef DeliveredMsg *following
    cdef bint was_pending = d != NULL and d.flags & PENDING
    # The stream would keep what the consumer has forgotten.
    if acked != NULL and not acked_reserve(acked, o.pending.n + 1):
        return ENTRY_REFUSED
    mark_dirty(o)
    if acked != NULL:
        acked_add(acked, e.sseq)
    d = pending_first(&o.pending)
    while d != NULL and d.seq <= e.sseq:
        following = pending_next(&o.pending, d)
        if acked != NULL and d.seq != e.sseq:
            acked_add(acked, d.seq)
        pending_forget(&o.pending, d)
        d = following
    if not was_pending:
        return ENTRY_UNKNOWN
    if e.dseq > o.floor.consumer:
        o.floor.consumer = e.dseq
        o.floor.stream = e.sseq
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_forgotten(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&o.pending, e.sseq)
    if d == NULL:
        return ENTRY_UNKNOWN
    pending_forget(&o.pending, d)
    mark_dirty(o)
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_position(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    if e.op == OP_RESET:
        pending_free(&o.pending)
    o.delivered.consumer = e.dseq
    o.delivered.stream = e.sseq
    o.floor = e.floor
    mark_dirty(o)
    return ENTRY_APPLIED


cdef ConsumerOutcome store_consumer_entry(ConsumerState o, const ConsumerEntry *e, Acked *acked) noexcept nogil:
    if e.op == OP_DELIVERED:
        return store_delivered(o, e)
    if e.op == OP_ACKED:
        return store_acked_all(o, e, acked) if e.kind == ACKED_ALL else store_acked_one(o, e, acked)
    if e.op == OP_WAITS:
        return store_wait(o, e)
    if e.op == OP_RETURNED:
        return store_returned(o, e)
    if e.op == OP_FORGOTTEN:
        return store_forgotten(o, e)
    return store_position(o, e)


local_consumer_log.propose = store_consumer_entry


# -- the whole state ---------------------------------------------------------------------------------------------------

cdef bint snapshot_state(ConsumerState o, ConsumerSnapshot *snap) noexcept nogil:
    cdef const DeliveredMsg *d = pending_first(&o.pending)
    cdef uint32_t i
    # A client may have the consumer start at any sequence.
    snap.delivered_consumer = min(o.delivered.consumer, <uint64_t> MAX_POSITION)
    snap.delivered_stream = min(o.delivered.stream, <uint64_t> MAX_POSITION)
    snap.floor_consumer = min(o.floor.consumer, <uint64_t> MAX_POSITION)
    snap.floor_stream = min(o.floor.stream, <uint64_t> MAX_POSITION)
    snap.pending = <PendingEntry *> malloc((o.pending.n + 1) * sizeof(PendingEntry))
    snap.redelivered = <RedeliveredEntry *> malloc((o.pending.nredelivered + 1) * sizeof(RedeliveredEntry))
    if snap.pending == NULL or snap.redelivered == NULL:
        return False
    while d != NULL:
        if d.seq > snap.floor_stream:
            snap.pending[snap.n_pending].stream_seq = d.seq
            snap.pending[snap.n_pending].consumer_seq = d.dseq
            snap.pending[snap.n_pending].ts = d.ts
            snap.n_pending += 1
        d = pending_next(&o.pending, d)
    for i in range(1, o.pending.used + 1):
        d = &o.pending.entries[i]
        if d.rdc > 0:
            snap.redelivered[snap.n_redelivered].seq = d.seq
            snap.redelivered[snap.n_redelivered].count = <uint64_t> d.rdc
            snap.n_redelivered += 1
    return True


cdef bint restore_state(ConsumerState o, const ConsumerSnapshot *snap, uint64_t first) noexcept nogil:
    cdef DeliveredMsg *d
    cdef size_t i
    pending_free(&o.pending)
    o.delivered.consumer = snap.delivered_consumer
    o.delivered.stream = snap.delivered_stream
    o.floor.consumer = snap.floor_consumer
    o.floor.stream = snap.floor_stream
    for i in range(snap.n_redelivered):
        if snap.redelivered[i].seq >= first and snap.redelivered[i].count:
            d = find_or_add(o, snap.redelivered[i].seq)
            if d == NULL:
                return False
            pending_set_rdc(
                &o.pending, d, <int64_t> min(snap.redelivered[i].count, <uint64_t> MOST_REDELIVERIES))
    for i in range(snap.n_pending):
        d = find_or_add(o, snap.pending[i].stream_seq)
        if d == NULL:
            return False
        pending_track(
            &o.pending, d, snap.pending[i].consumer_seq, snap.pending[i].ts,
            time_after(snap.pending[i].ts, wait_of(o, d.rdc)))
    return True


# -- for tests ---------------------------------------------------------------------------------------------------------

OPS = {
    "delivered": OP_DELIVERED, "waits": OP_WAITS, "returned": OP_RETURNED, "acked": OP_ACKED, "forgotten": OP_FORGOTTEN,
    "moved": OP_MOVED, "reset": OP_RESET,
}
OUTCOMES = {ENTRY_APPLIED: "applied", ENTRY_UNKNOWN: "unknown", ENTRY_REFUSED: "refused"}


def apply_entry(
    ConsumerState o not None, str op not None, uint64_t sseq, *, uint64_t dseq=0, uint64_t dc=0, int64_t ts=0,
    bint all=False, tuple floor=(0, 0)
) -> tuple[str, list[int]]:
    """Apply an entry as a log does: (the outcome, the sequences that it acknowledges)."""
    cdef ConsumerEntry e
    cdef ConsumerOutcome outcome
    cdef Acked acked
    cdef size_t i
    e.op = OPS[op]
    e.kind = ACKED_ALL if all else ACKED_ONE
    e.sseq, e.dseq, e.dc, e.ts = sseq, dseq, dc, ts
    e.floor.consumer, e.floor.stream = floor
    acked_init(&acked)
    pthread_mutex_lock(&o.lock)
    outcome = store_consumer_entry(o, &e, &acked)
    pthread_mutex_unlock(&o.lock)
    try:
        return OUTCOMES[outcome], [acked.seqs[i] for i in range(acked.n)]
    finally:
        acked_free(&acked)
