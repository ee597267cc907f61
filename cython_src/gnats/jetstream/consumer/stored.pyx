"""The stored state of a consumer; see stored.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport malloc

from gnats.includes.times cimport time_after
from gnats.jetstream.consumer.acked cimport Acked, acked_add, acked_reserve
from gnats.jetstream.consumer.consumerentry cimport (
    ACKED_ALL,
    ENTRY_APPLIED,
    ENTRY_REFUSED,
    ENTRY_UNKNOWN,
    OP_ACKED,
    OP_DELIVERED,
    OP_FORGOTTEN,
    OP_RESET,
    OP_RETURNED,
    OP_WAITS,
    ConsumerEntry,
    ConsumerOutcome,
)
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
from gnats.jetstream.consumer.settings cimport POLICY_NONE, ConsumerSettings, wait_of
from gnats.store.format.codec cimport MAX_POSITION, ConsumerSnapshot, PendingEntry, RedeliveredEntry

cdef int64_t MOST_REDELIVERIES = <int64_t> 1 << 32    # that a restored message is taken to have


cdef inline ConsumerOutcome store_delivered(
    StoredState *s, const ConsumerSettings *cfg, const ConsumerEntry *e
) noexcept nogil:
    cdef DeliveredMsg *d = NULL
    if cfg.ack_policy != POLICY_NONE:
        d = find_or_add(s, e.sseq)
        if d == NULL:
            return ENTRY_REFUSED
    if e.dseq > s.floor.consumer:
        if e.dseq > s.delivered.consumer:
            s.delivered.consumer = e.dseq
        if e.sseq > s.delivered.stream:
            s.delivered.stream = e.sseq
        if cfg.ack_policy == POLICY_NONE:
            s.floor = s.delivered
    if d == NULL:
        return ENTRY_APPLIED
    if <int64_t> e.dc - 1 > d.rdc:
        pending_set_rdc(&s.pending, d, <int64_t> e.dc - 1)
    if cfg.max_deliver and e.dc > cfg.max_deliver:
        pending_untrack(&s.pending, d)   # keeps its count: need_ack() still wants the message
    else:
        pending_track(&s.pending, d, e.dseq, e.ts, time_after(e.ts, wait_of(cfg, d.rdc)))
    return ENTRY_APPLIED


cdef inline DeliveredMsg *find_or_add(StoredState *s, uint64_t sseq) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&s.pending, sseq)
    if d == NULL and pending_reserve(&s.pending):
        d = pending_add(&s.pending, sseq)
    return d


cdef inline ConsumerOutcome store_wait(
    StoredState *s, const ConsumerSettings *cfg, const ConsumerEntry *e
) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&s.pending, e.sseq)
    if d == NULL or not d.flags & PENDING:
        return ENTRY_UNKNOWN
    d.ts = e.ts
    # The wait of a queued message begins with its delivery.
    pending_set_deadline(
        &s.pending, d, INT64_MAX if d.flags & QUEUED else time_after(e.ts, wait_of(cfg, d.rdc)))
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_returned(StoredState *s, const ConsumerEntry *e) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&s.pending, e.sseq)
    if d == NULL:
        return ENTRY_UNKNOWN
    pending_set_rdc(&s.pending, d, d.rdc - 1)
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_acked_one(StoredState *s, const ConsumerEntry *e, Acked *acked) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&s.pending, e.sseq)
    cdef const DeliveredMsg *first
    cdef uint64_t dseq
    cdef bint was_pending
    if acked != NULL and not acked_add(acked, e.sseq):
        return ENTRY_REFUSED
    if d == NULL:
        return ENTRY_UNKNOWN
    dseq = d.dseq
    was_pending = d.flags & PENDING
    pending_forget(&s.pending, d)
    if not was_pending:
        return ENTRY_UNKNOWN
    if dseq <= s.floor.consumer:
        return ENTRY_APPLIED
    first = pending_first(&s.pending)
    if first == NULL:
        s.floor = s.delivered
    elif dseq == s.floor.consumer + 1:
        s.floor.consumer = dseq
        s.floor.stream = e.sseq
        if first.seq > e.sseq and first.dseq:
            s.floor.consumer = first.dseq - 1
            s.floor.stream = first.seq - 1
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_acked_all(StoredState *s, const ConsumerEntry *e, Acked *acked) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&s.pending, e.sseq)
    cdef DeliveredMsg *following
    cdef bint was_pending = d != NULL and d.flags & PENDING
    # The stream would keep what the consumer has forgotten.
    if acked != NULL and not acked_reserve(acked, s.pending.n + 1):
        return ENTRY_REFUSED
    if acked != NULL:
        acked_add(acked, e.sseq)
    d = pending_first(&s.pending)
    while d != NULL and d.seq <= e.sseq:
        following = pending_next(&s.pending, d)
        if acked != NULL and d.seq != e.sseq:
            acked_add(acked, d.seq)
        pending_forget(&s.pending, d)
        d = following
    if not was_pending:
        return ENTRY_UNKNOWN
    if e.dseq > s.floor.consumer:
        s.floor.consumer = e.dseq
        s.floor.stream = e.sseq
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_forgotten(StoredState *s, const ConsumerEntry *e) noexcept nogil:
    cdef DeliveredMsg *d = pending_find(&s.pending, e.sseq)
    if d == NULL:
        return ENTRY_UNKNOWN
    pending_forget(&s.pending, d)
    return ENTRY_APPLIED


cdef inline ConsumerOutcome store_position(StoredState *s, const ConsumerEntry *e) noexcept nogil:
    if e.op == OP_RESET:
        pending_free(&s.pending)
    s.delivered.consumer = e.dseq
    s.delivered.stream = e.sseq
    s.floor = e.floor
    return ENTRY_APPLIED


cdef ConsumerOutcome stored_apply(
    StoredState *s, const ConsumerSettings *cfg, const ConsumerEntry *e, Acked *acked
) noexcept nogil:
    if e.op == OP_DELIVERED:
        return store_delivered(s, cfg, e)
    if e.op == OP_ACKED:
        return store_acked_all(s, e, acked) if e.kind == ACKED_ALL else store_acked_one(s, e, acked)
    if e.op == OP_WAITS:
        return store_wait(s, cfg, e)
    if e.op == OP_RETURNED:
        return store_returned(s, e)
    if e.op == OP_FORGOTTEN:
        return store_forgotten(s, e)
    return store_position(s, e)


cdef void stored_forget_below(StoredState *s, uint64_t first) noexcept nogil:
    cdef DeliveredMsg *d
    cdef uint32_t i
    for i in range(1, s.pending.used + 1):
        d = &s.pending.entries[i]
        if d.seq < first and (d.flags or d.rdc):
            pending_forget(&s.pending, d)
            if s.pending.used == 0:
                return


# -- the whole state ---------------------------------------------------------------------------------------------------

cdef bint stored_snapshot(const StoredState *s, ConsumerSnapshot *snap) noexcept nogil:
    cdef const DeliveredMsg *d = pending_first(&s.pending)
    cdef uint32_t i
    # A client may have the consumer start at any sequence.
    snap.delivered_consumer = min(s.delivered.consumer, <uint64_t> MAX_POSITION)
    snap.delivered_stream = min(s.delivered.stream, <uint64_t> MAX_POSITION)
    snap.floor_consumer = min(s.floor.consumer, <uint64_t> MAX_POSITION)
    snap.floor_stream = min(s.floor.stream, <uint64_t> MAX_POSITION)
    snap.pending = <PendingEntry *> malloc((s.pending.n + 1) * sizeof(PendingEntry))
    snap.redelivered = <RedeliveredEntry *> malloc((s.pending.nredelivered + 1) * sizeof(RedeliveredEntry))
    if snap.pending == NULL or snap.redelivered == NULL:
        return False
    while d != NULL:
        if d.seq > snap.floor_stream:
            snap.pending[snap.n_pending].stream_seq = d.seq
            snap.pending[snap.n_pending].consumer_seq = d.dseq
            snap.pending[snap.n_pending].ts = d.ts
            snap.n_pending += 1
        d = pending_next(&s.pending, d)
    for i in range(1, s.pending.used + 1):
        d = &s.pending.entries[i]
        if d.rdc > 0:
            snap.redelivered[snap.n_redelivered].seq = d.seq
            snap.redelivered[snap.n_redelivered].count = <uint64_t> d.rdc
            snap.n_redelivered += 1
    return True


cdef bint stored_restore(
    StoredState *s, const ConsumerSettings *cfg, const ConsumerSnapshot *snap, uint64_t first
) noexcept nogil:
    cdef DeliveredMsg *d
    cdef size_t i
    pending_free(&s.pending)
    s.delivered.consumer = snap.delivered_consumer
    s.delivered.stream = snap.delivered_stream
    s.floor.consumer = snap.floor_consumer
    s.floor.stream = snap.floor_stream
    for i in range(snap.n_redelivered):
        if snap.redelivered[i].seq >= first and snap.redelivered[i].count:
            d = find_or_add(s, snap.redelivered[i].seq)
            if d == NULL:
                return False
            pending_set_rdc(
                &s.pending, d, <int64_t> min(snap.redelivered[i].count, <uint64_t> MOST_REDELIVERIES))
    for i in range(snap.n_pending):
        d = find_or_add(s, snap.pending[i].stream_seq)
        if d == NULL:
            return False
        pending_track(
            &s.pending, d, snap.pending[i].consumer_seq, snap.pending[i].ts,
            time_after(snap.pending[i].ts, wait_of(cfg, d.rdc)))
    return True
