"""Deliver a consumer's messages; see consumerdelivery.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from gnats.core.messages.headers cimport CRLF, LINE_END, begin_header, header_begin_size
from gnats.core.net.pollstate cimport PollState
from gnats.core.routing.route cimport ROUTE_DELIVERED, RouteOutcome
from gnats.includes.atomics cimport exchange8, fence, load8, store8, store64, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put, put_text
from gnats.includes.times cimport time_after
from gnats.jetstream.consumer.acks cimport ACK_NUMBERS, AckInfo, ack_reply
from gnats.jetstream.consumer.consumeracks cimport process_deleted
from gnats.jetstream.consumer.consumerentry cimport ACKED_ONE, ENTRY_REFUSED, OP_FORGOTTEN, OP_RETURNED
from gnats.jetstream.consumer.consumerpull cimport announce_requests, next_waiting, process_waiting
from gnats.jetstream.consumer.consumerstate cimport (
    CONSUMER_MAX_DELIVERIES,
    ConsumerState,
    hand_over,
    kick,
    lowest_pending,
    notify,
    num_pending,
    propose_of,
    update_acks,
    update_delivered,
)
from gnats.jetstream.consumer.consumertimers cimport arm_timer, send_flow_control, timers_due
from gnats.jetstream.consumer.flowcontrol cimport is_stalled, need_flow_control
from gnats.jetstream.consumer.pacing cimport pace_wait
from gnats.jetstream.consumer.pending cimport (
    PENDING,
    DeliveredMsg,
    pending_enqueue,
    pending_find,
    pending_pop,
)
from gnats.jetstream.consumer.pinning cimport PIN_N
from gnats.jetstream.consumer.proposals cimport MOST_UNDER_WAY
from gnats.jetstream.consumer.redelivery cimport give_up
from gnats.jetstream.consumer.requests cimport WaitingRequest, heartbeat_after, waitq_add, waitq_set_n
from gnats.jetstream.consumer.send_queue cimport (
    OutQ,
    Outgoing,
    out_dest,
    out_hdr,
    out_reply,
    outq_add,
    outq_drop,
    outq_status,
    outq_take,
)
from gnats.jetstream.consumer.settings cimport POLICY_FLOW_CONTROL, POLICY_NONE, PRIORITY_PINNED
from gnats.jetstream.consumer.skiplist cimport has_skips, next_skipped
from gnats.jetstream.engine.barrier cimport batch_time, js_poller_of, last_visible, run_again, run_when_visible
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.engine.outbox cimport publish_now
from gnats.jetstream.state.streamcore cimport LIMITS_POLICY
from gnats.store.base cimport STORE_DELETED, STORE_EOF, STORE_NOT_FOUND, STORE_OK, STORE_UNREADABLE, StoreMsg

cdef enum:
    SLICE_MSGS = 256           # messages gathered at once
    SLICE_BYTES = 256 * 1024   # bytes gathered at once
    ROUNDS = 4                 # slices of one run(), before connections have their turn
    QUEUE_KEPT = 256 * 1024    # bytes of the queue that stay allocated
    HEADER_ROOM = 64           # bytes of the lines that are added to a header
    RETRY = 100000000          # ns until a delivery is tried again: no memory, an unreadable block, no subscriber
    AHEAD = 32                 # messages looked up at once under the store's lock

cdef enum Gathered:
    GATHER_WAIT        # nothing to deliver until an event wakes the consumer
    GATHER_MORE        # the slice is full: there may be more
    GATHER_HELD        # nothing may be delivered before held_until


# The next messages to deliver, looked up. A redelivery may still go before them.
cdef struct Lookahead:
    StoreMsg msgs[AHEAD]
    uint32_t at, n     # the next one; how many
    bint end           # the stream has no further message for the consumer
    int64_t npc        # messages still to be delivered, the looked-up ones included


cdef void on_run(ConsumerBase base, PollState *ps) noexcept nogil:
    run(<ConsumerState> base, ps)


cdef void on_timer(void *owner, PollState *ps) noexcept nogil:
    run_timed(<ConsumerState> owner, ps)


cdef void run_timed(ConsumerState o, PollState *ps) noexcept nogil:
    pthread_mutex_lock(&o.lock)
    o.armed = 0
    pthread_mutex_unlock(&o.lock)
    run(o, ps)


cdef void on_kicked(void *owner, PollState *ps) noexcept nogil:
    run_kicked(<ConsumerState> owner, ps)


cdef void run_kicked(ConsumerState o, PollState *ps) noexcept nogil:
    pthread_mutex_lock(&o.lock)
    o.begun = o.started
    pthread_mutex_unlock(&o.lock)
    run(o, ps)


cdef void run(ConsumerState o, PollState *ps) noexcept nogil:
    cdef OutQ taken
    cdef int64_t wall
    cdef int found = GATHER_MORE, rounds = 0
    cdef bint done, left
    exchange8(&o.again, 1)
    fence()
    if exchange8(&o.busy, 1):
        return   # the busy thread sees `again`
    while True:
        exchange8(&o.again, 0)
        wall = batch_time(js_poller_of(ps))
        pthread_mutex_lock(&o.lock)
        if o.closed or not o.begun:
            found = GATHER_WAIT
        else:
            timers_due(o, ps, wall)
            found = gather(o, ps, wall)
        if o.raft is None:
            taken = o.out
            o.out = o.spare
        else:
            taken = o.spare
            take_committed(o, &taken)
        left = o.proposals.used != 0
        done = o.raft is None and o.cfg.ack_policy == POLICY_NONE and o.cfg.retention != LIMITS_POLICY
        pthread_mutex_unlock(&o.lock)
        if left:
            hand_over(o, ps)
        send_all(o, ps, &taken, done)
        if taken.cap > QUEUE_KEPT:
            free(taken.p)
            taken.p = NULL
            taken.cap = 0
        taken.n = 0
        o.spare = taken
        rounds += 1
        if found == GATHER_MORE and rounds < ROUNDS:
            continue
        exchange8(&o.busy, 0)
        fence()
        # A thread that set `again` after this one looked, and found it busy, relies on another round.
        if found != GATHER_MORE and not load8(&o.again):
            return
        if rounds >= ROUNDS:
            if not run_again(js_poller_of(ps), o):
                kick(o)
            return
        if exchange8(&o.busy, 1):
            return


# -- gathering ---------------------------------------------------------------------------------------------------------

cdef bint may_deliver(ConsumerState o, int64_t wall) noexcept nogil:
    """Return whether the consumer is not paused, and has a subscriber with room, or a request."""
    if o.cfg.pause_until > wall:
        return False
    if o.cfg.push:
        return o.active and not is_stalled(&o.flow)
    return o.waiting.n != 0


cdef int gather(ConsumerState o, PollState *ps, int64_t wall) noexcept nogil:
    """Fill `out` with a slice of messages, end requests, arm the timer. Return a Gathered."""
    cdef Lookahead ahead
    cdef StoreMsg *sm
    cdef uint64_t n = 0
    cdef int64_t delivered = 0, bytes = 0
    cdef int found = GATHER_MORE
    cdef bint full = False, stop = False
    # Set before looking: a message that is stored after the look-up wakes the consumer.
    store8(&o.hungry, 1)
    ahead.at = ahead.n = 0
    ahead.end = False
    ahead.npc = -1
    while True:
        if not may_deliver(o, wall):
            found = GATHER_WAIT
            break
        if n >= SLICE_MSGS or bytes >= SLICE_BYTES:
            break
        if o.proposals.n - o.proposals.committed >= MOST_UNDER_WAY:
            full = True   # what is committed runs it again
            found = GATHER_WAIT
            break
        if o.held_until > ps.now:
            found = GATHER_HELD
            break
        if o.stored.pending.nqueued:
            if ahead.npc < 0:
                pthread_mutex_lock(&o.store.lock)
                ahead.npc = num_pending(o)
                pthread_mutex_unlock(&o.store.lock)
            bytes += redeliver(o, ps, wall, ahead.npc, &stop)
            n += 1
            if stop:
                found = GATHER_WAIT
                break
            continue
        if o.cfg.max_ack_pending and o.stored.pending.n >= o.cfg.max_ack_pending:
            full = True
            found = GATHER_WAIT
            break
        if ahead.at == ahead.n:
            if delivered:
                end_lookahead(o, &ahead, delivered)
                delivered = 0
            if ahead.end or not look_ahead(o, ps, &ahead, SLICE_MSGS - n):
                found = GATHER_WAIT
                break
        sm = &ahead.msgs[ahead.at]
        if held_back(o, ps, sm):
            found = GATHER_HELD
            break
        if not deliver_msg(o, ps, sm, 1, ahead.npc - 1 if ahead.npc > 0 else 0, wall):
            found = GATHER_WAIT
            break
        ahead.at += 1
        ahead.npc -= 1
        o.sseq = sm.seq + 1
        if has_skips(&o.skips):
            o.sseq = next_skipped(&o.skips)
        delivered += 1
        n += 1
        bytes += sm.hdr_n + sm.msg_n
    if delivered or ahead.at < ahead.n:
        end_lookahead(o, &ahead, delivered)
    if found == GATHER_WAIT:
        if o.pace.replay and o.sseq > o.pace.replay_end:
            o.pace.replay = False
    if not o.cfg.push and o.waiting.n:
        if o.waiting.due and o.waiting.due <= ps.now:
            # A no_wait request that is due ends here even when max_ack_pending is what holds messages back.
            process_waiting(o, found == GATHER_WAIT, ps.now)
        elif found == GATHER_WAIT and o.waiting.nowait and not full:
            process_waiting(o, True, ps.now)
    if o.waiting.unannounced:
        announce_requests(o)
    store8(&o.hungry, may_deliver(o, wall) and not full)
    arm_timer(o, ps, wall)
    return found


cdef bint look_ahead(ConsumerState o, PollState *ps, Lookahead *a, uint64_t most) noexcept nogil:
    """Look up the next messages, `most` at most. False when there is none."""
    cdef uint64_t seq = o.sseq, skip = 0, visible
    cdef int rc = STORE_OK
    cdef bint waits = False
    a.at = a.n = 0
    if not o.cfg.push and o.waiting.n == 1 and 0 < o.waiting.head.n < <int64_t> most:
        most = <uint64_t> o.waiting.head.n
    if o.cfg.max_ack_pending:
        most = min(most, o.cfg.max_ack_pending - o.stored.pending.n)
    pthread_mutex_lock(&o.store.lock)
    visible = last_visible(o.stream)
    while a.n < AHEAD and a.n < most:
        if has_skips(&o.skips):
            if a.n:
                break   # one at a time: next_skipped() sets the next sequence after its delivery
            if unlikely(seq > visible):
                waits = True
                break
            rc = o.store.load(seq, &a.msgs[0])
            if unlikely(rc == STORE_UNREADABLE):
                break
            if rc != STORE_OK:
                o.sseq = next_skipped(&o.skips)
                seq = o.sseq
                continue
            a.n = 1
            break
        rc = o.store.load_next(o.filter, seq, &a.msgs[a.n], &skip)
        if unlikely(rc == STORE_OK and a.msgs[a.n].seq > visible):
            # A crash could still take this message back: the consumer does not see it yet.
            waits = True
            rc = STORE_EOF
            skip = visible
        if rc != STORE_OK:
            break
        seq = skip + 1
        a.n += 1
    if a.n == 0 and not has_skips(&o.skips):
        # At the end of the stream: skip the messages that do not pass the filter.
        if skip >= o.sseq:
            o.sseq = skip + 1
        if o.sseq > o.store.last_seq and o.npc != 0:
            o.npc = 0
            o.npf = o.store.last_seq
    elif rc == STORE_EOF and not waits and o.npc > <int64_t> a.n and not has_skips(&o.skips):
        o.npc = <int64_t> a.n   # the end of the stream is reached, so the other counted messages are lost
    a.end = rc != STORE_OK and rc != STORE_UNREADABLE and not has_skips(&o.skips)
    if unlikely(rc == STORE_UNREADABLE and a.n == 0):
        o.held_until = ps.now + RETRY
    a.npc = num_pending(o)
    o.looks_ahead = a.n != 0
    store64(&o.ahead, a.msgs[a.n - 1].seq + 1 if a.n else o.sseq)
    store64(&o.low, lowest_pending(o))
    pthread_mutex_unlock(&o.store.lock)
    if unlikely(waits) and not run_when_visible(js_poller_of(ps), o.stream, o):
        o.held_until = ps.now + RETRY
    return a.n != 0


cdef void end_lookahead(ConsumerState o, const Lookahead *a, int64_t delivered) noexcept nogil:
    """Count off the delivered messages, and those that were removed after they were looked up and are not delivered."""
    cdef StoreMsg sm
    cdef uint32_t i
    cdef int rc
    pthread_mutex_lock(&o.store.lock)
    o.npc -= delivered
    if unlikely(o.thinned):
        for i in range(a.at, a.n):
            rc = o.store.load(a.msgs[i].seq, &sm)
            o.npc -= rc == STORE_NOT_FOUND or rc == STORE_DELETED
    o.looks_ahead = o.thinned = False
    store64(&o.ahead, o.sseq)
    pthread_mutex_unlock(&o.store.lock)


cdef bint held_back(ConsumerState o, PollState *ps, const StoreMsg *sm) noexcept nogil:
    """Return whether the rate limit or the replay hold the message back. If so, set held_until."""
    cdef int64_t wait = pace_wait(&o.pace, ps.now, o.cfg.rate, o.cfg.burst, sm.ts, o.held_until != 0)
    o.held_until = time_after(ps.now, wait) if wait else 0
    return wait != 0


cdef int64_t redeliver(ConsumerState o, PollState *ps, int64_t wall, int64_t npc, bint *stop) noexcept nogil:
    """Take the first message of the redelivery queue, and deliver it unless it has had its deliveries. Return its
    bytes, 0 when it is not delivered. Set stop[0] when no request takes it, or it cannot be read now."""
    cdef const DeliveredMsg *e
    cdef StoreMsg sm
    cdef bint signal = False
    cdef uint64_t seq = pending_pop(&o.stored.pending), dc
    cdef int rc
    e = pending_find(&o.stored.pending, seq)
    dc = <uint64_t> (e.rdc + 2)
    if o.cfg.max_deliver and dc > o.cfg.max_deliver:
        if dc == o.cfg.max_deliver + 1:
            notify(o, CONSUMER_MAX_DELIVERIES, seq, 0, dc - 1, 0, NULL, 0)
        give_up(o, e, dc, wall)
        return 0
    pthread_mutex_lock(&o.store.lock)
    rc = o.store.load(seq, &sm)
    pthread_mutex_unlock(&o.store.lock)
    if rc == STORE_NOT_FOUND or rc == STORE_DELETED:
        # The message was removed, and removed() or purged() has not been called for it yet.
        process_deleted(o, seq, e.dseq, max(dc - 1, <uint64_t> 1), wall, &signal)
        propose_of(o, OP_FORGOTTEN, seq)   # below an ack floor, an ack changes nothing
        return 0
    if rc != STORE_OK:
        pending_enqueue(&o.stored.pending, seq)
        o.held_until = ps.now + RETRY
        stop[0] = True
        return 0
    if not deliver_msg(o, ps, &sm, dc, npc, wall):
        pending_enqueue(&o.stored.pending, seq)
        stop[0] = True
        return 0
    return sm.hdr_n + sm.msg_n


cdef void serve_again(ConsumerState o, WaitingRequest *wr) noexcept nogil:
    """Give a request back the message that next_waiting() has taken from it, and that is not delivered."""
    wr.d -= 1
    if wr.n > 0:
        waitq_set_n(&o.waiting, wr, wr.n + 1)
        return
    wr.n = 1
    if not waitq_add(&o.waiting, wr):
        free(wr)


cdef bint deliver_msg(
    ConsumerState o, PollState *ps, const StoreMsg *sm, uint64_t dc, int64_t npc, int64_t wall
) noexcept nogil:
    """Put a message into `out`. dc: its number of deliveries; npc: messages still to be delivered after it. False when
    no request takes it, or out of memory."""
    cdef char[HEADER_ROOM] line
    cdef WaitingRequest *wr = NULL
    cdef Outgoing *out
    cdef AckInfo info
    cdef const char *dest = o.dsubj
    cdef size_t dest_n = o.dsubj_n, line_n = 0, hdr_n = 0, numbers
    cdef size_t prefix = o.ack_prefix_n
    cdef char *p
    cdef char[ACK_NUMBERS] number_text
    cdef int64_t wrn = 1, wrb = 0, size
    info.sseq = sm.seq
    info.dseq = o.dseq
    info.dc = dc
    info.ts = sm.ts
    info.pending = <uint64_t> npc
    numbers = ack_reply(number_text, b"", 0, &info)
    if o.cfg.headers_only:
        line_n = snprintf(line, HEADER_ROOM, b"Nats-Msg-Size: %u\r\n", sm.msg_n)
        hdr_n = header_begin_size(sm.hdr_n) + line_n + LINE_END
    size = sm.subject_n + prefix + numbers + (hdr_n if hdr_n else sm.hdr_n) + (0 if hdr_n else sm.msg_n)
    if not o.cfg.push:
        wr = next_waiting(o, ps, size, npc + 1)
        if wr == NULL:
            return False
        wrn = wr.n
        wrb = wr.b
        dest = wr.reply
        dest_n = wr.reply_n
        if o.cfg.priority_policy == PRIORITY_PINNED:
            line_n += snprintf(
                line + line_n, HEADER_ROOM - line_n, b"Nats-Pin-Id: %.*s\r\n", <int> (PIN_N if o.pin.held else 0),
                o.pin.id)
            hdr_n = header_begin_size(sm.hdr_n) + line_n + LINE_END
        if wr.n > 0 and wr.hb:
            wr.hbt = heartbeat_after(ps.now, wr.hb)
    out = outq_add(&o.out, dest_n, prefix + numbers, hdr_n)
    if out == NULL or update_delivered(o, o.dseq, sm.seq, dc, wall, wall) == ENTRY_REFUSED:
        if out != NULL:
            outq_drop(&o.out, out)
        o.held_until = ps.now + RETRY
        if wr != NULL:
            serve_again(o, wr)
        return False
    out.seq = sm.seq
    out.dseq = o.dseq
    out.dc = dc
    if o.cfg.ack_policy != POLICY_NONE and not o.cfg.flow_control:
        out.after = o.proposals.n
    elif o.raft is not None and o.cfg.retention != LIMITS_POLICY and o.cfg.ack_policy == POLICY_NONE:
        update_acks(o, ACKED_ONE, o.dseq, sm.seq, wall, NULL)   # the stream may remove it
    memcpy(out_dest(out), dest, dest_n)
    memcpy(out_reply(out), o.ack_prefix_p, prefix)
    memcpy(out_reply(out) + prefix, number_text, numbers)
    if hdr_n:
        p = begin_header(out_hdr(out), sm.hdr, sm.hdr_n)
        put_text(put(p, line, line_n), CRLF)
    point_at(o, out, sm)
    if wr != NULL and wr.n <= 0:
        if wrb > 0:
            batch_completed(o, wr, wrn, wrb)
        if wr.announced:
            o.log.tell(o, wr, False)
        free(wr)
    if o.cfg.rate > 0:
        o.pace.tokens -= size
    o.pace.replay_ts = sm.ts
    note_delivery(o, ps, sm, dest_n + prefix + numbers + hdr_n + out.body_n)
    return True


cdef void point_at(ConsumerState o, Outgoing *out, const StoreMsg *sm) noexcept nogil:
    """Have an entry of the queue, with its texts, point at its message."""
    out.subject = sm.subject
    out.subject_n = sm.subject_n
    out.body = sm.hdr
    out.body_hdr_n = sm.hdr_n
    out.body_n = 0 if o.cfg.headers_only else sm.hdr_n + sm.msg_n
    if out.hdr_n and not o.cfg.headers_only:
        out.body = sm.hdr + sm.hdr_n
        out.body_hdr_n = 0
        out.body_n = sm.msg_n


cdef void take_committed(ConsumerState o, OutQ *taken) noexcept nogil:
    """Take what the group has committed out of `out`, into an empty queue. The messages are looked up anew: a store
    shows them for one batch alone. One that was removed meanwhile is not sent."""
    cdef Outgoing *out
    cdef StoreMsg sm
    cdef size_t at = 0
    outq_take(&o.out, taken, o.proposals.committed)
    pthread_mutex_lock(&o.store.lock)
    while at < taken.n:
        out = <Outgoing *> (taken.p + at)
        at += out.size
        if out.seq == 0:
            continue
        if o.store.load(out.seq, &sm) == STORE_OK:
            point_at(o, out, &sm)
        else:
            out.seq = 0
            out.dest_n = 0
    pthread_mutex_unlock(&o.store.lock)


cdef void batch_completed(ConsumerState o, WaitingRequest *wr, int64_t n, int64_t bytes) noexcept nogil:
    """Send a request the status that it has all its messages before its limit of bytes."""
    cdef char[96] fields
    snprintf(
        fields, 96, b"Nats-Pending-Messages: %lld\r\nNats-Pending-Bytes: %lld\r\n", <long long> n,
        <long long> bytes)
    outq_status(&o.out, wr.reply, wr.reply_n, NULL, 0, b"409 Batch Completed", fields)


cdef void note_delivery(ConsumerState o, PollState *ps, const StoreMsg *sm, int64_t size) noexcept nogil:
    """Note that a message of `size` bytes is delivered. The log has applied it."""
    if o.cfg.ack_policy == POLICY_NONE:
        o.adflr = o.dseq
        o.asflr = sm.seq
    o.dseq += 1
    if o.flow.maxpb > 0:
        o.flow.pbytes += size
    if o.flow.maxpb > 0 and need_flow_control(&o.flow, size, awaits_flow_control(o)):
        send_flow_control(o, ps)
    if o.cfg.push:
        if o.cfg.heartbeat:
            o.heartbeat_at = time_after(ps.now, o.cfg.heartbeat)
    elif o.cfg.inactive:
        o.waiting.last = ps.now


cdef inline bint awaits_flow_control(ConsumerState o) noexcept nogil:
    """Return whether only an answer to flow control lets the consumer deliver more."""
    return (
        o.cfg.ack_policy == POLICY_FLOW_CONTROL and o.cfg.max_ack_pending != 0
        and o.stored.pending.n >= o.cfg.max_ack_pending)


# -- sending -----------------------------------------------------------------------------------------------------------

cdef void send_all(ConsumerState o, PollState *ps, OutQ *q, bint done) noexcept nogil:
    """Publish the messages of a queue. done: a sent message counts as acknowledged (ack policy none), so the stream may
    remove it. No lock is held."""
    cdef Outgoing *out
    cdef size_t at = 0
    cdef RouteOutcome outcome
    cdef bint failed = False, worked = False
    while at < q.n:
        out = <Outgoing *> (q.p + at)
        at += out.size
        if out.dest_n == 0:
            continue
        if out.hdr_n:
            outcome = publish_now(
                ps, o.stream, out_dest(out), out.dest_n, out.subject, out.subject_n, out_reply(out), out.reply_n,
                out_hdr(out), out.hdr_n, out.body, out.body_n)
        else:
            outcome = publish_now(
                ps, o.stream, out_dest(out), out.dest_n, out.subject, out.subject_n, out_reply(out), out.reply_n,
                out.body, out.body_hdr_n, out.body + out.body_hdr_n, out.body_n - out.body_hdr_n)
        if out.seq == 0:
            continue
        if outcome == ROUTE_DELIVERED:
            worked = True
        else:
            failed = True   # without memory, too: it is delivered again after a rest
            pthread_mutex_lock(&o.lock)
            if not o.closed:
                did_not_deliver(o, ps, out.seq, out_dest(out), out.dest_n)
            pthread_mutex_unlock(&o.lock)
        if done:
            o.stream.ack_msg(out.seq, ps)
    if failed:
        if not worked:
            rest_after_failure(o, ps)
        exchange8(&o.again, 1)   # this thread is in run(), which sees it


cdef void did_not_deliver(ConsumerState o, PollState *ps, uint64_t sseq, const char *dest, size_t n) noexcept nogil:
    """Take a delivery back whose message found no subscriber of `dest`."""
    cdef WaitingRequest *wr = o.waiting.head
    cdef DeliveredMsg *e
    propose_of(o, OP_RETURNED, sseq)
    if o.cfg.push:
        o.active = False
        o.failed = True
        exchange8(&o.recheck, 1)
        o.held_until = ps.now + RETRY
        return
    while wr != NULL:
        if wr.reply_n == n and memcmp(wr.reply, dest, n) == 0:
            waitq_set_n(&o.waiting, wr, wr.n + 1)
            wr.d -= 1
            break
        wr = wr.next
    e = pending_find(&o.stored.pending, sseq)
    if e != NULL and e.flags & PENDING:
        pending_enqueue(&o.stored.pending, sseq)


cdef void rest_after_failure(ConsumerState o, PollState *ps) noexcept nogil:
    """Deliver nothing for a while: no message of a slice has found a subscriber that takes it.

    A request may have interest and yet no taker: its subscriber may not receive the reply subject, or has too much
    to read. Without a rest its message would be delivered again at once, for ever. The next request ends the rest.
    """
    pthread_mutex_lock(&o.lock)
    o.held_until = o.resting = ps.now + RETRY
    pthread_mutex_unlock(&o.lock)
