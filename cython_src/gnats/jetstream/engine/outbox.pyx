"""Messages that JetStream publishes; see outbox.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.net.pollstate cimport PollState
from gnats.core.publishing cimport send_internal_msg
from gnats.core.routing.route cimport RouteOutcome
from gnats.core.runtime.turn cimport turn_end, turn_spend
from gnats.includes.atomics cimport add64_seq, unlikely
from gnats.jetstream.engine.barrier cimport JsPoller, Outbox, StreamBase, mark_dirty, stream_failed
from gnats.jetstream.engine.shortage cimport report_shortage

cdef enum:
    OUTBOX_KEPT = 256 * 1024  # bytes of an outbox that stay allocated
    SENDING = 16              # units of a turn that a message of an outbox takes
    LEFT_MOST = 16777216      # bytes of answers that a turn may leave; more are sent, however long that takes


# A message in an Outbox; subject, reply, header and payload follow it.
cdef struct Outgoing:
    void *stream             # borrowed StreamBase
    uint32_t subject_n
    uint32_t reply_n
    uint32_t hdr_n
    uint32_t msg_n
    uint32_t anyway          # send it even when the stream has failed


cdef inline size_t outgoing_size(size_t n) noexcept nogil:
    return (sizeof(Outgoing) + n + 7) & ~<size_t> 7


cdef inline size_t size_of(const Outgoing *o) noexcept nogil:
    return outgoing_size(o.subject_n + <size_t> o.reply_n + o.hdr_n + o.msg_n)


cdef bint publish_later(
    JsPoller *jp, StreamBase stream, const char *subject, size_t sn, const char *hdr, size_t hn, const char *msg,
    size_t n, bint anyway
) noexcept nogil:
    if unlikely(jp.behind) and jp.ps.turn.until != NULL:
        turn_end(&jp.ps.turn)   # of the connection that publishes: it may add one answer in a round
    return put_out(
        jp, &jp.synced if stream.barrier.syncs else &jp.out, stream, subject, sn, NULL, 0, hdr, hn, msg, n, anyway)


cdef bint publish_flushed(
    JsPoller *jp, StreamBase stream, const char *subject, size_t sn, const char *reply, size_t rn, const char *msg,
    size_t n
) noexcept nogil:
    return put_out(jp, &jp.out, stream, subject, sn, reply, rn, NULL, 0, msg, n, True)


cdef bint put_out(
    JsPoller *jp, Outbox *out, StreamBase stream, const char *subject, size_t sn, const char *reply, size_t rn,
    const char *hdr, size_t hn, const char *msg, size_t n, bint anyway
) noexcept nogil:
    cdef size_t need = outgoing_size(sn + rn + hn + n)
    cdef size_t cap
    cdef Outgoing *o
    cdef char *p
    # First, because a message in the outbox leaves after the flush of the dirty streams: its own must be among them.
    if not mark_dirty(jp, stream):
        report_shortage(jp.ps)
        return False
    if out.cap - out.n < need:
        cap = max(out.cap * 2, max(out.n + need, <size_t> 16384))
        p = <char *> realloc(out.p, cap)
        if p == NULL:
            report_shortage(jp.ps)
            return False
        out.p = p
        out.cap = cap
    o = <Outgoing *> (out.p + out.n)
    out.n += need
    o.stream = <void *> stream
    o.subject_n = <uint32_t> sn
    o.reply_n = <uint32_t> rn
    o.hdr_n = <uint32_t> hn
    o.msg_n = <uint32_t> n
    o.anyway = anyway
    p = <char *> (o + 1)
    memcpy(p, subject, sn)
    if rn:
        memcpy(p + sn, reply, rn)
    if hn:
        memcpy(p + sn + rn, hdr, hn)
    if n:
        memcpy(p + sn + rn + hn, msg, n)
    return True


cdef RouteOutcome publish_now(
    PollState *ps, StreamBase stream, const char *subject, size_t sn, const char *shown, size_t shown_n,
    const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg, size_t n
) noexcept nogil:
    ps.epoch += 1   # a core message, or another poller's delivery, may have been queued before this one was found
    return send_internal_msg(
        <Subscriber> ps.js, stream.account, subject, sn, shown, shown_n, reply, rn, hdr, hn, msg, n)


cdef bint send_flushed(JsPoller *jp) noexcept nogil:
    cdef bint left = jp.sending.n != 0, sent
    if not left:
        jp.sending = jp.out   # what is put into `out` from now on waits until this has left
        memset(&jp.out, 0, sizeof(Outbox))
    sent = send_out(jp, &jp.sending, False)
    if sent:
        keep_memory(jp)
    # Places in `dirty` have kept the streams alive until now.
    count_streams(&jp.sending)
    if left:
        count_streams(&jp.out)
    return sent


cdef bint send_out(JsPoller *jp, Outbox *out, bint stored) noexcept nogil:
    cdef PollState *ps = jp.ps
    cdef bint whole = unsent(jp) > LEFT_MOST
    cdef Outgoing *o
    cdef char *p
    cdef bint counted
    while out.at < out.n:
        if unlikely(ps.turn.over) and not whole:
            return False
        o = <Outgoing *> (out.p + out.at)
        p = <char *> (o + 1)
        counted = out.at < out.counted
        out.at += size_of(o)
        turn_spend(&ps.turn, SENDING)
        if stored or o.anyway or not stream_failed(<StreamBase> o.stream):
            publish_now(
                ps, <StreamBase> o.stream, p, o.subject_n, NULL, 0, p + o.subject_n if o.reply_n else NULL, o.reply_n,
                p + o.subject_n + o.reply_n, o.hdr_n, p + o.subject_n + o.reply_n + o.hdr_n, o.msg_n)
        if counted:
            add64_seq(&(<StreamBase> o.stream).refs, <uint64_t> -1)
    return True


cdef void keep_memory(JsPoller *jp) noexcept nogil:
    """Use the memory of `sending`, whose messages are sent, for the next ones."""
    if jp.out.p == NULL and jp.sending.cap <= OUTBOX_KEPT:
        jp.sending.n = jp.sending.at = jp.sending.counted = 0
        jp.out = jp.sending
    else:
        free(jp.sending.p)
    memset(&jp.sending, 0, sizeof(Outbox))


cdef void count_streams(Outbox *out) noexcept nogil:
    """Count each message that is still to be sent in the `refs` of its stream, which may be closed before that."""
    cdef Outgoing *o
    cdef size_t at = max(out.at, out.counted)
    out.counted = out.n
    while at < out.n:
        o = <Outgoing *> (out.p + at)
        at += size_of(o)
        add64_seq(&(<StreamBase> o.stream).refs, 1)
