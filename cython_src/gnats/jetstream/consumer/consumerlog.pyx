"""Apply proposed entries of a consumer at once; see consumerlog.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.jetstream.consumer.acked cimport Acked, acked_free, acked_init
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
from gnats.jetstream.consumer.consumerstate cimport ConsumerState, mark_dirty
from gnats.jetstream.consumer.stored cimport stored_apply


cdef ConsumerOutcome apply_at_once(ConsumerState o, const ConsumerEntry *e, Acked *acked) noexcept nogil:
    cdef ConsumerOutcome outcome = stored_apply(&o.stored, &o.cfg, e, acked)
    if outcome != ENTRY_REFUSED:
        mark_dirty(o)
    return outcome


local_consumer_log.propose = apply_at_once


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
    outcome = stored_apply(&o.stored, &o.cfg, &e, &acked)
    pthread_mutex_unlock(&o.lock)
    try:
        return OUTCOMES[outcome], [acked.seqs[i] for i in range(acked.n)]
    finally:
        acked_free(&acked)
