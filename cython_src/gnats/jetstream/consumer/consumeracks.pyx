"""Handle a consumer's acknowledgements; see consumeracks.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport strlen

from gnats.core.messages.headers cimport named_header
from gnats.core.messages.message cimport Message
from gnats.core.net.pollstate cimport PollState, poller_random
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_after, time_before
from gnats.jetstream.consumer.acked cimport Acked, acked_free, acked_init
from gnats.jetstream.consumer.acks cimport (
    ACK_ACK,
    ACK_NAK,
    ACK_NEXT,
    ACK_PROGRESS,
    ACK_TERM,
    AckInfo,
    ack_reply_info,
    nak_delay,
    parse_ack,
    trim,
)
from gnats.jetstream.consumer.consumerentry cimport (
    ACKED_ALL,
    ACKED_ONE,
    ENTRY_APPLIED,
    ENTRY_REFUSED,
    ConsumerOutcome,
)
from gnats.jetstream.consumer.consumerpull cimport process_next_msg_request
from gnats.jetstream.consumer.consumerstate cimport (
    CONSUMER_ACK_BEYOND,
    CONSUMER_ACKED,
    CONSUMER_BAD_NAK,
    CONSUMER_NAKED,
    CONSUMER_TERMINATED,
    ConsumerState,
    hand_over,
    notify,
    restart_wait,
    suppress_deletion,
    update_acks,
    waits_for_quorum,
    wake,
)
from gnats.jetstream.consumer.flowcontrol cimport flow_answered
from gnats.jetstream.consumer.pending cimport (
    PENDING,
    QUEUED,
    DeliveredMsg,
    pending_dequeue,
    pending_enqueue,
    pending_find,
)
from gnats.jetstream.consumer.redelivery cimport move_ack_floor
from gnats.jetstream.consumer.send_queue cimport outq_answer
from gnats.jetstream.consumer.settings cimport POLICY_ALL, POLICY_EXPLICIT, POLICY_FLOW_CONTROL, POLICY_NONE
from gnats.jetstream.engine.barrier cimport batch_time, js_poller_of
from gnats.jetstream.engine.outbox cimport publish_now
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.state.streamcore cimport LIMITS_POLICY
from gnats.store.times.durations cimport parse_int64

cdef enum:
    REASON_ROOM = 4096        # the most bytes of a reason or an invalid delay that an event has


cdef bint on_ack(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    process_ack(<ConsumerState> ctx, m.ps, &m.subject, &m.reply, m.data + m.hdr, m.n - m.hdr)
    return True


cdef void process_ack(
    ConsumerState o, PollState *ps, const Slice *subject, const Slice *reply, const char *msg, size_t n
) noexcept nogil:
    cdef AckInfo info
    cdef Acked acked
    cdef const char *rest
    cdef size_t rest_n
    cdef int64_t wall = batch_time(js_poller_of(ps))
    cdef int what = parse_ack(msg, n, &rest, &rest_n)
    cdef bint answer, left, signal = False
    acked_init(&acked)
    ack_reply_info(subject.p, subject.n, &info)
    answer = info.sseq != 0
    pthread_mutex_lock(&o.lock)
    if o.closed:
        pthread_mutex_unlock(&o.lock)
        return
    suppress_deletion(o, ps.now)
    if what == ACK_ACK:
        answer = process_ack_msg(o, ps, info.sseq, info.dseq, info.dc, wall, &acked, &signal)
    elif what == ACK_NEXT:
        process_ack_msg(o, ps, info.sseq, info.dseq, info.dc, wall, &acked, &signal)
        answer = False
    elif what == ACK_NAK:
        signal = process_nak(o, info.sseq, info.dseq, info.dc, wall, rest, rest_n)
    elif what == ACK_PROGRESS:
        progress_update(o, info.sseq, wall)
    elif what == ACK_TERM:
        rest = trim(rest, &rest_n)
        answer = process_term(
            o, info.sseq, info.dseq, info.dc, wall, rest, min(rest_n, <size_t> REASON_ROOM), &acked, &signal)
    if answer and reply.n and waits_for_quorum(o):
        answer = False
        if not outq_answer(&o.out, reply.p, reply.n, o.proposals.n):
            report_shortage(ps)
    left = o.proposals.used != 0
    pthread_mutex_unlock(&o.lock)
    release_acked(o, ps, &acked)
    if left:
        hand_over(o, ps)
    if what == ACK_NEXT:
        process_next_msg_request(o, ps, reply.p, reply.n, rest, rest_n)
    if answer and reply.n:
        publish_now(ps, o.stream, reply.p, reply.n, NULL, 0, NULL, 0, NULL, 0, b"", 0)
    if signal:
        wake(o, ps)


cdef void release_acked(ConsumerState o, PollState *ps, Acked *acked) noexcept nogil:
    """Let the stream remove the messages, and free `acked`. No lock is held."""
    cdef size_t i
    for i in range(acked.n):
        o.stream.ack_msg(acked.seqs[i], ps)
    acked_free(acked)


cdef bint process_ack_msg(
    ConsumerState o, PollState *sampler, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, Acked *acked,
    bint *signal
) noexcept nogil:
    """Acknowledge a message. Return whether to answer: it is acknowledged then, or was before. Set signal[0] when
    max_ack_pending held deliveries back until now. sampler: the calling poller, for the random numbers of sampling;
    NULL: not a client's ack, not sampled. acked: NULL when the stream has no message to remove."""
    cdef const DeliveredMsg *e
    cdef ConsumerOutcome outcome
    # With replicas, all of them let the stream remove it, when the group has committed it.
    cdef bint removes = o.cfg.retention != LIMITS_POLICY and o.raft is None
    cdef bint full = o.cfg.max_ack_pending and o.stored.pending.n >= o.cfg.max_ack_pending
    cdef bint beyond
    if sseq >= o.sseq and (not o.cfg.flow_control or o.cfg.ack_policy == POLICY_ALL):
        pthread_mutex_lock(&o.store.lock)
        beyond = sseq > o.store.last_seq
        pthread_mutex_unlock(&o.store.lock)
        if beyond:
            notify(o, CONSUMER_ACK_BEYOND, sseq, dseq, dc, 0, NULL, 0)
        return False
    if o.cfg.ack_policy == POLICY_NONE:
        return removes
    if not removes:
        acked = NULL
    if o.cfg.ack_policy == POLICY_EXPLICIT:
        e = pending_find(&o.stored.pending, sseq)
        if e != NULL and e.flags & PENDING:
            if sampler != NULL:
                sample_ack(o, sampler, e, sseq, dseq, dc)
            dseq = e.dseq
        outcome = update_acks(o, ACKED_ONE, dseq, sseq, wall, acked)
        if outcome == ENTRY_APPLIED:
            signal[0] |= full
            move_ack_floor(o, dseq, sseq)
    else:
        # The client sends dseq: it may be any number, and is too high after a reset. An ack floor above the last
        # delivery would make the state invalid.
        dseq = min(dseq, o.dseq - 1)
        if dseq <= o.adflr or sseq <= o.asflr:
            return True
        outcome = update_acks(o, ACKED_ALL, dseq, sseq, wall, acked)
        if outcome != ENTRY_REFUSED:
            signal[0] |= full
            o.adflr = dseq
            o.asflr = sseq
    if outcome == ENTRY_REFUSED and sampler != NULL:
        report_shortage(sampler)   # leave it to a later ack
    return outcome != ENTRY_REFUSED


cdef void sample_ack(
    ConsumerState o, PollState *sampler, const DeliveredMsg *e, uint64_t sseq, uint64_t dseq, uint64_t dc
) noexcept nogil:
    if o.cfg.sample == 0:
        return
    if o.cfg.sample < 100 and poller_random(sampler) % 100 > o.cfg.sample:
        return
    notify(o, CONSUMER_ACKED, sseq, dseq, dc, time_before(realtime_ns(), e.ts), NULL, 0)


cdef bint process_nak(
    ConsumerState o, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *rest, size_t n
) noexcept nogil:
    """Handle a -NAK. Return True when run() is to be called: to deliver the message again, or to arm the timer for its
    delay."""
    cdef DeliveredMsg *e = pending_find(&o.stored.pending, sseq)
    cdef int64_t delay
    cdef bint bad
    if dseq <= o.adflr or dseq > o.dseq or e == NULL or not e.flags & PENDING:
        return False
    notify(o, CONSUMER_NAKED, sseq, dseq, dc, 0, NULL, 0)
    if nak_delay(rest, n, &delay, &bad):
        pending_dequeue(&o.stored.pending, e)
        # Move its delivery into the past, so that its ack wait ends after the delay.
        restart_wait(o, sseq, time_after(time_before(wall, o.cfg.ack_wait), delay), True)
        o.ldt = wall
        return True   # run() arms the timer
    if bad:
        rest = trim(rest, &n)
        notify(o, CONSUMER_BAD_NAK, sseq, dseq, dc, 0, rest, min(n, <size_t> REASON_ROOM))
    if not e.flags & QUEUED:
        pending_enqueue(&o.stored.pending, sseq)
    return True


cdef void progress_update(ConsumerState o, uint64_t sseq, int64_t wall) noexcept nogil:
    """Handle a +WPI: begin the message's ack wait anew."""
    if restart_wait(o, sseq, wall, True) == ENTRY_APPLIED:
        o.ldt = wall


cdef bint process_term(
    ConsumerState o, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *reason, size_t n,
    Acked *acked, bint *signal
) noexcept nogil:
    """Handle a +TERM: acknowledge the message and post CONSUMER_TERMINATED. Return whether to answer."""
    cdef bint answer = process_ack_msg(o, NULL, sseq, dseq, dc, wall, acked, signal)
    notify(o, CONSUMER_TERMINATED, sseq, dseq, dc, 0, reason, n)
    return answer


cdef void process_deleted(
    ConsumerState o, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, bint *signal
) noexcept nogil:
    cdef const char *reason = b"Unacknowledged message was deleted"
    process_term(o, sseq, dseq, dc, wall, reason, strlen(reason), NULL, signal)


# -- answers to flow control -------------------------------------------------------------------------------------------

cdef bint on_flow_control(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    process_flow_control(<ConsumerState> ctx, m)
    return True


cdef void process_flow_control(ConsumerState o, const Message *m) noexcept nogil:
    cdef Slice dseq, sseq
    cdef Acked acked
    cdef int64_t consumer_seq, stream_seq
    cdef bint signal = False
    acked_init(&acked)
    pthread_mutex_lock(&o.lock)
    if not o.closed and flow_answered(&o.flow, &m.subject) and m.hdr and o.cfg.ack_policy == POLICY_FLOW_CONTROL:
        dseq = named_header(m.data, m.hdr, b"Nats-Last-Consumer")
        sseq = named_header(m.data, m.hdr, b"Nats-Last-Stream")
        consumer_seq = parse_int64(dseq.p, dseq.n) if dseq.p != NULL else 0
        stream_seq = parse_int64(sseq.p, sseq.n) if sseq.p != NULL else 0
        if stream_seq > 0:
            process_ack_msg(
                o, NULL, <uint64_t> stream_seq, <uint64_t> max(consumer_seq, <int64_t> 0), 1, realtime_ns(), &acked,
                &signal)
    pthread_mutex_unlock(&o.lock)
    release_acked(o, m.ps, &acked)
    wake(o, m.ps)
