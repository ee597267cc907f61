"""Batches of a stream, of both kinds; see batching.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.inbox cimport Inbox
from gnats.includes.atomics cimport add32, add64, loadi64
from gnats.includes.times cimport time_after
from gnats.jetstream.batchtable cimport BatchTable, OpenBatch, batch_add
from gnats.jetstream.engine cimport Local
from gnats.jetstream.inbound cimport Inbound, record_size, refuse
from gnats.jetstream.puback cimport (
    ERR_ACCOUNT_RESOURCES,
    ERR_INSUFFICIENT_RESOURCES,
    ERR_MESSAGE_EXCEEDS_MAXIMUM,
    ERR_SEALED,
)
from gnats.jetstream.streamcore cimport BATCH_ABANDONED, StreamCore
from gnats.jetstream.usage cimport usage_exceeds

cdef enum:
    MAX_UNTOLD = 1024    # advisories that wait for the control loop; more of them are not told


cdef bint may_batch(StreamCore s, Local *local, Inbound *m) noexcept nogil:
    cdef size_t most = <size_t> s.cfg.max_msg_size
    if s.closed or not s.active:
        m.unheard = True
        return False
    if s.cfg.sealed:
        return refuse(s, local, m, ERR_SEALED)
    if s.server_usage is not None and usage_exceeds(s.server_usage, s.cfg.memory, 0):
        return refuse(s, local, m, ERR_INSUFFICIENT_RESOURCES)
    if s.account_usage is not None and usage_exceeds(s.account_usage, s.cfg.memory, <int64_t> record_size(m)):
        return refuse(s, local, m, ERR_ACCOUNT_RESOURCES)
    if s.cfg.max_msg_size >= 0 and (m.hdr_n > most or m.n > most - m.hdr_n):
        return refuse(s, local, m, ERR_MESSAGE_EXCEEDS_MAXIMUM)
    return True


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
    if add32(&s.untold, 1) >= MAX_UNTOLD:
        add32(&s.untold, <uint32_t> -1)
        return
    (<Inbox> s.client.inbox).post_jetstream(<void *> s, BATCH_ABANDONED, why, id, n)
