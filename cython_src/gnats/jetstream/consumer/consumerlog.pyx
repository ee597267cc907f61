"""The log of a consumer on one server; see consumerlog.pxd."""
from gnats.jetstream.consumer.consumerstate cimport (
    OP_DELIVERED,
    POLICY_EXPLICIT,
    POLICY_NONE,
    ConsumerEntry,
    ConsumerState,
    mark_dirty,
)
from gnats.jetstream.consumer.pending cimport Entry, pending_first


cdef inline void store_delivered(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    if e.dseq <= o.floor.consumer:
        return
    if e.dseq > o.delivered.consumer:
        o.delivered.consumer = e.dseq
    if e.sseq > o.delivered.stream:
        o.delivered.stream = e.sseq
    if o.cfg.ack_policy == POLICY_NONE:
        o.floor = o.delivered
    mark_dirty(o)


cdef inline void store_acked(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    cdef const Entry *first
    if o.cfg.ack_policy == POLICY_NONE:
        return
    mark_dirty(o)
    if e.dseq <= o.floor.consumer or not e.was_pending:
        return
    if o.cfg.ack_policy != POLICY_EXPLICIT:
        o.floor.consumer = e.dseq
        o.floor.stream = e.sseq
        return
    first = pending_first(&o.pending)
    if first == NULL:
        o.floor = o.delivered
    elif e.dseq == o.floor.consumer + 1:
        o.floor.consumer = e.dseq
        o.floor.stream = e.sseq
        if first.seq > e.sseq and first.dseq:
            o.floor.consumer = first.dseq - 1
            o.floor.stream = first.seq - 1


cdef void store_consumer_entry(ConsumerState o, const ConsumerEntry *e) noexcept nogil:
    if e.op == OP_DELIVERED:
        store_delivered(o, e)
    else:
        store_acked(o, e)


local_consumer_log.propose = store_consumer_entry
