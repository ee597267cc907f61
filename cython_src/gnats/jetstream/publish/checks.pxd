"""Check whether a message may be stored; each rule stands here once (processJetStreamMsg in stream.go,
checkMsgHeadersPreClusteredProposal in jetstream_batching.go).

A check reads the stream, the message and the messages in flight. It sends nothing and stores nothing; the stream's lock
is held. It may change the message: a schedule gets its rollup, an increment becomes its counter's new value. The order
of the checks decides which error a message with several gets. nats-server has two orders: one for a message that is
stored right after the check, with none in flight; the other for a message in an atomic or a fast batch, or one that
other servers get before it is stored. `f` has the messages in flight; NULL: it is the first order.
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.engine.usage cimport usage_exceeds
from gnats.jetstream.publish.errors cimport ERR_ACCOUNT_RESOURCES
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.publish.inflight cimport InFlight
from gnats.jetstream.publish.refusal cimport Refusal, refuse
from gnats.jetstream.state.entry cimport Outcome
from gnats.jetstream.state.streamcore cimport StreamCore


# Check a message in no batch. Return MSG_STORED when it may be stored; MSG_DUPLICATE when its id was stored with
# sequence r.last, or is in flight (r.last 0); MSG_REFUSED with the reason in r; MSG_UNHEARD when the stream is not
# open.
cdef Outcome check_message(StreamCore s, Inbound *m, Refusal *r) noexcept nogil
# Check a message in an atomic or a fast batch, behind check_admission(). The same, but for MSG_UNHEARD.
cdef Outcome check_ahead(StreamCore s, Inbound *m, const InFlight *f, Refusal *r) noexcept nogil
# The checks of a message in an atomic or a fast batch that come before the batch is looked up. Return MSG_STORED,
# MSG_REFUSED with the reason in r, or MSG_UNHEARD.
cdef Outcome check_admission(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil
# Refuse unless `id` is that of the stream's last message.
cdef bint check_last_id(StreamCore s, const Slice *id, Refusal *r) noexcept nogil


cdef inline bint check_account_usage(StreamCore s, uint64_t size, Refusal *r) noexcept nogil:
    """Refuse when `size` more bytes would exceed the limit of the stream's account."""
    if s.account_usage is not None and usage_exceeds(s.account_usage, s.cfg.memory, <int64_t> size):
        return refuse(r, ERR_ACCOUNT_RESOURCES)
    return True
