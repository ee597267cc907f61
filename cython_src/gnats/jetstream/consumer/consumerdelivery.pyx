"""Deliver a consumer's messages; see consumerdelivery.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from gnats.core.accounts.account cimport Account
from gnats.core.messages.headers cimport CRLF, LINE_END, begin_header, header_begin_size
from gnats.core.net.pollstate cimport PollState, poller_random
from gnats.core.routing.route cimport ROUTE_DELIVERED, RouteOutcome
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.includes.atomics cimport exchange8, fence, load8, store8, unlikely
from gnats.includes.base62 cimport BASE, DIGITS
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put, put_text
from gnats.includes.times cimport duration_of, time_after, time_before
from gnats.includes.units cimport MILLISECOND, SECOND
from gnats.jetstream.consumer.acks cimport ACK_NUMBERS, AckInfo, ack_reply
from gnats.jetstream.consumer.consumeracks cimport Acked
from gnats.jetstream.consumer.consumerstate cimport (
    ACK_DELAY,
    CONSUMER_INACTIVE,
    CONSUMER_MAX_DELIVERIES,
    CONSUMER_UNPAUSED,
    CONSUMER_UNPINNED,
    PIN_N,
    POLICY_FLOW_CONTROL,
    POLICY_NONE,
    PRIORITY_PINNED,
)
from gnats.jetstream.consumer.pending cimport (
    PENDING,
    QUEUED,
    Entry,
    pending_earliest,
    pending_enqueue,
    pending_find,
    pending_first,
    pending_forget,
    pending_next,
    pending_pop,
    pending_rdc,
    pending_reserve,
    pending_set_rdc,
    pending_track,
    pending_untrack,
)
from gnats.jetstream.consumer.requests cimport WaitingRequest, heartbeat_after, waitq_add, waitq_set_n
from gnats.jetstream.consumer.send_queue cimport OutQ, Outgoing, out_dest, out_hdr, out_reply, outq_add, outq_status
from gnats.jetstream.engine.barrier cimport batch_time, last_visible, local_of, publish_now, run_again, run_when_visible
from gnats.jetstream.state.streamcore cimport LIMITS_POLICY
from gnats.store.base cimport STORE_DELETED, STORE_EOF, STORE_NOT_FOUND, STORE_OK, STORE_UNREADABLE, StoreMsg

cdef enum:
    SLICE_MSGS = 256           # messages gathered at once
    SLICE_BYTES = 256 * 1024   # bytes gathered at once
    ROUNDS = 4                 # slices of one run(), before connections have their turn
    QUEUE_KEPT = 256 * 1024    # bytes of the queue that stay allocated
    HEADER_ROOM = 64           # bytes of the lines that are added to a header
    RETRY = 100000000          # ns until a delivery is tried again: no memory, an unreadable block, no subscriber


cdef class ConsumerDelivery(ConsumerPull):
    """A consumer's deliveries; see Consumer."""

    def __dealloc__(self):
        free(self.spare.p)

    cdef void run(self, PollState *ps) noexcept nogil:
        cdef OutQ taken
        cdef int64_t wall
        cdef int found = GATHER_MORE, rounds = 0
        cdef bint done
        exchange8(&self.again, 1)
        fence()
        if exchange8(&self.busy, 1):
            return   # the busy thread sees `again`
        while True:
            exchange8(&self.again, 0)
            wall = batch_time(local_of(ps))
            pthread_mutex_lock(&self.lock)
            if self.closed or not self.begun:
                found = GATHER_WAIT
            else:
                self.timers_due(ps, wall)
                found = self.gather(ps, wall)
            taken = self.out
            self.out = self.spare
            done = self.cfg.ack_policy == POLICY_NONE and self.cfg.retention != LIMITS_POLICY
            pthread_mutex_unlock(&self.lock)
            self.send_all(ps, &taken, done)
            if taken.cap > QUEUE_KEPT:
                free(taken.p)
                taken.p = NULL
                taken.cap = 0
            taken.n = 0
            self.spare = taken
            rounds += 1
            if found == GATHER_MORE and rounds < ROUNDS:
                continue
            exchange8(&self.busy, 0)
            fence()
            # A thread that set `again` after this one looked, and found it busy, relies on another round.
            if found != GATHER_MORE and not load8(&self.again):
                return
            if rounds >= ROUNDS:
                if not run_again(local_of(ps), self):
                    self.kick()
                return
            if exchange8(&self.busy, 1):
                return

    # -- gathering ---------------------------------------------------------------------------------------------------

    cdef bint may_deliver(self, int64_t wall) noexcept nogil:
        if self.cfg.pause_until > wall:
            return False
        if self.cfg.push:
            return self.active and not (self.maxpb > 0 and self.pbytes > self.maxpb)
        return self.waiting.n != 0

    cdef int gather(self, PollState *ps, int64_t wall) noexcept nogil:
        cdef Lookahead ahead
        cdef StoreMsg *sm
        cdef uint64_t n = 0
        cdef int64_t delivered = 0, bytes = 0
        cdef int found = GATHER_MORE
        cdef bint full = False, stop = False
        # Set before looking: a message that is stored after the look-up wakes the consumer.
        store8(&self.hungry, 1)
        ahead.at = ahead.n = 0
        ahead.end = False
        ahead.npc = -1
        while True:
            if not self.may_deliver(wall):
                found = GATHER_WAIT
                break
            if n >= SLICE_MSGS or bytes >= SLICE_BYTES:
                break
            if self.held_until > ps.now:
                found = GATHER_HELD
                break
            if not pending_reserve(&self.pending):
                self.held_until = ps.now + RETRY
                found = GATHER_HELD
                break
            if self.pending.nqueued:
                if ahead.npc < 0:
                    pthread_mutex_lock(&self.store.lock)
                    ahead.npc = self.num_pending()
                    pthread_mutex_unlock(&self.store.lock)
                bytes += self.redeliver(ps, wall, ahead.npc, &stop)
                n += 1
                if stop:
                    found = GATHER_WAIT
                    break
                continue
            if self.cfg.max_ack_pending and self.pending.n >= self.cfg.max_ack_pending:
                full = True
                found = GATHER_WAIT
                break
            if ahead.at == ahead.n:
                if delivered:
                    pthread_mutex_lock(&self.store.lock)
                    self.npc -= delivered
                    pthread_mutex_unlock(&self.store.lock)
                    delivered = 0
                if ahead.end or not self.look_ahead(ps, &ahead, SLICE_MSGS - n):
                    found = GATHER_WAIT
                    break
            sm = &ahead.msgs[ahead.at]
            if self.held_back(ps, sm):
                found = GATHER_HELD
                break
            if not self.deliver_msg(ps, sm, 1, ahead.npc - 1 if ahead.npc > 0 else 0, wall):
                found = GATHER_WAIT
                break
            ahead.at += 1
            ahead.npc -= 1
            self.sseq = sm.seq + 1
            if self.skip_at < self.skip_n:
                self.next_skipped()
            delivered += 1
            n += 1
            bytes += sm.hdr_n + sm.msg_n
        if delivered:
            pthread_mutex_lock(&self.store.lock)
            self.npc -= delivered
            pthread_mutex_unlock(&self.store.lock)
        if found == GATHER_WAIT:
            if self.replay and self.sseq > self.replay_end:
                self.replay = False
        if not self.cfg.push and self.waiting.n:
            if self.waiting.due and self.waiting.due <= ps.now:
                # A no_wait request that is due ends here even when max_ack_pending is what holds messages back.
                self.process_waiting(found == GATHER_WAIT, ps.now)
            elif found == GATHER_WAIT and self.waiting.nowait and not full:
                self.process_waiting(True, ps.now)
        store8(&self.hungry, self.may_deliver(wall) and not full)
        self.arm_timer(ps, wall)
        return found

    cdef void next_skipped(self) noexcept nogil:
        self.skip_at += 1
        if self.skip_at < self.skip_n:
            self.sseq = self.skip_list[self.skip_at]
            return
        self.sseq = self.skip_resume + 1
        free(self.skip_list)
        self.skip_list = NULL
        self.skip_at = self.skip_n = 0

    cdef bint look_ahead(self, PollState *ps, Lookahead *a, uint64_t most) noexcept nogil:
        cdef uint64_t seq = self.sseq, skip = 0, visible
        cdef int rc = STORE_OK
        cdef bint waits = False
        a.at = a.n = 0
        if not self.cfg.push and self.waiting.n == 1 and 0 < self.waiting.head.n < <int64_t> most:
            most = <uint64_t> self.waiting.head.n
        if self.cfg.max_ack_pending:
            most = min(most, self.cfg.max_ack_pending - self.pending.n)
        pthread_mutex_lock(&self.store.lock)
        visible = last_visible(self.stream)
        while a.n < AHEAD and a.n < most:
            if self.skip_at < self.skip_n:
                if a.n:
                    break   # one at a time: next_skipped() sets the next sequence after its delivery
                if unlikely(seq > visible):
                    waits = True
                    break
                rc = self.store.load(seq, &a.msgs[0])
                if unlikely(rc == STORE_UNREADABLE):
                    break
                if rc != STORE_OK:
                    self.next_skipped()
                    seq = self.sseq
                    continue
                a.n = 1
                break
            rc = self.store.load_next(self.filter, seq, &a.msgs[a.n], &skip)
            if unlikely(rc == STORE_OK and a.msgs[a.n].seq > visible):
                # A crash could still take this message back: the consumer does not see it yet.
                waits = True
                rc = STORE_EOF
                skip = visible
            if rc != STORE_OK:
                break
            seq = skip + 1
            a.n += 1
        if a.n == 0 and self.skip_at >= self.skip_n:
            # At the end of the stream: skip the messages that do not pass the filter.
            if skip >= self.sseq:
                self.sseq = skip + 1
            if self.sseq > self.store.last_seq and self.npc != 0:
                self.npc = 0
                self.npf = self.store.last_seq
        elif rc == STORE_EOF and not waits and self.npc > <int64_t> a.n and self.skip_at >= self.skip_n:
            self.npc = <int64_t> a.n   # the end of the stream is reached, so the other counted messages are lost
        a.end = rc != STORE_OK and rc != STORE_UNREADABLE and self.skip_at >= self.skip_n
        if unlikely(rc == STORE_UNREADABLE and a.n == 0):
            self.held_until = ps.now + RETRY
        a.npc = self.num_pending()
        pthread_mutex_unlock(&self.store.lock)
        if unlikely(waits) and not run_when_visible(local_of(ps), self.stream, self):
            self.held_until = ps.now + RETRY
        return a.n != 0

    cdef bint held_back(self, PollState *ps, const StoreMsg *sm) noexcept nogil:
        cdef int64_t wait = 0, since
        if self.cfg.rate > 0:
            if ps.now > self.tokens_at:
                self.tokens = min(self.cfg.burst, self.tokens + (ps.now - self.tokens_at) * self.cfg.rate / 1e9)
                self.tokens_at = ps.now
            if self.tokens < 0:
                wait = time_after(duration_of(-self.tokens / self.cfg.rate), 1)
        if self.replay and self.replay_ts and self.held_until == 0:
            since = time_before(sm.ts, self.replay_ts)
            if since > MILLISECOND:
                wait = max(wait, since)
        if wait:
            self.held_until = time_after(ps.now, wait)
            return True
        self.held_until = 0
        return False

    cdef int64_t redeliver(self, PollState *ps, int64_t wall, int64_t npc, bint *stop) noexcept nogil:
        cdef Entry *e
        cdef StoreMsg sm
        cdef Acked unused
        cdef bint signal = False
        cdef uint64_t seq = pending_pop(&self.pending), dc, dseq
        cdef int64_t ts, rdc = pending_rdc(&self.pending, seq) + 1
        cdef int rc
        dc = <uint64_t> (rdc + 1)
        e = pending_find(&self.pending, seq)
        if self.cfg.max_deliver and dc > self.cfg.max_deliver:
            pending_set_rdc(&self.pending, seq, rdc)
            if dc == self.cfg.max_deliver + 1:
                self.notify(CONSUMER_MAX_DELIVERIES, seq, 0, dc - 1, 0, NULL, 0)
            e = pending_find(&self.pending, seq)
            if e.flags & PENDING:
                dseq = e.dseq
                ts = e.ts
                pending_untrack(&self.pending, e)
                self.update_delivered(dseq, seq, dc, ts, wall)
                self.move_ack_floor(dseq, seq)
            return 0
        pthread_mutex_lock(&self.store.lock)
        rc = self.store.load(seq, &sm)
        pthread_mutex_unlock(&self.store.lock)
        if rc == STORE_NOT_FOUND or rc == STORE_DELETED:
            # The message was removed, and removed() or purged() has not been called for it yet.
            if e != NULL and e.flags & PENDING:
                unused.seqs = unused.few
                unused.n = 0
                unused.cap = 8
                self.process_deleted(seq, e.dseq, <uint64_t> max(rdc, <int64_t> 1), wall, &unused, &signal)
                if unused.seqs != unused.few:
                    free(unused.seqs)
                e = pending_find(&self.pending, seq)
                if e != NULL:
                    pending_forget(&self.pending, e)   # it was below an ack floor, where an ack changes nothing
            return 0
        if rc != STORE_OK:
            pending_enqueue(&self.pending, seq)
            self.held_until = ps.now + RETRY
            stop[0] = True
            return 0
        pending_set_rdc(&self.pending, seq, rdc)
        if not self.deliver_msg(ps, &sm, dc, npc, wall):
            pending_set_rdc(&self.pending, seq, rdc - 1)
            pending_enqueue(&self.pending, seq)
            stop[0] = True
            return 0
        return sm.hdr_n + sm.msg_n

    cdef void serve_again(self, WaitingRequest *wr) noexcept nogil:
        """Give a request back the message that next_waiting() has taken from it, and that is not delivered."""
        wr.d -= 1
        if wr.n > 0:
            waitq_set_n(&self.waiting, wr, wr.n + 1)
            return
        wr.n = 1
        if not waitq_add(&self.waiting, wr):
            free(wr)

    cdef bint deliver_msg(
        self, PollState *ps, const StoreMsg *sm, uint64_t dc, int64_t npc, int64_t wall
    ) noexcept nogil:
        cdef char[HEADER_ROOM] line
        cdef WaitingRequest *wr = NULL
        cdef Outgoing *o
        cdef AckInfo info
        cdef const char *dest = self.dsubj
        cdef size_t dest_n = self.dsubj_n, line_n = 0, hdr_n = 0, numbers
        cdef size_t prefix = self.ack_prefix_n
        cdef char *p
        cdef char[ACK_NUMBERS] number_text
        cdef int64_t wrn = 1, wrb = 0, size
        cdef uint32_t body_n = sm.hdr_n + sm.msg_n
        info.sseq = sm.seq
        info.dseq = self.dseq
        info.dc = dc
        info.ts = sm.ts
        info.pending = <uint64_t> npc
        numbers = ack_reply(number_text, b"", 0, &info)
        if self.cfg.headers_only:
            line_n = snprintf(line, HEADER_ROOM, b"Nats-Msg-Size: %u\r\n", sm.msg_n)
            hdr_n = header_begin_size(sm.hdr_n) + line_n + LINE_END
            body_n = 0
        size = sm.subject_n + prefix + numbers + (hdr_n if hdr_n else sm.hdr_n) + (0 if hdr_n else sm.msg_n)
        if not self.cfg.push:
            wr = self.next_waiting(ps, size, npc + 1)
            if wr == NULL:
                return False
            wrn = wr.n
            wrb = wr.b
            dest = wr.reply
            dest_n = wr.reply_n
            if self.cfg.priority_policy == PRIORITY_PINNED:
                line_n += snprintf(
                    line + line_n, HEADER_ROOM - line_n, b"Nats-Pin-Id: %.*s\r\n", <int> (PIN_N if self.pinned else 0),
                    self.pin)
                hdr_n = header_begin_size(sm.hdr_n) + line_n + LINE_END
            if wr.n > 0 and wr.hb:
                wr.hbt = heartbeat_after(ps.now, wr.hb)
        o = outq_add(&self.out, dest_n, prefix + numbers, hdr_n)
        if o == NULL:
            self.held_until = ps.now + RETRY
            if wr != NULL:
                self.serve_again(wr)
            return False
        o.seq = sm.seq
        o.dseq = self.dseq
        o.dc = dc
        o.subject = sm.subject
        o.subject_n = sm.subject_n
        o.body = sm.hdr
        o.body_hdr_n = sm.hdr_n
        o.body_n = body_n
        memcpy(out_dest(o), dest, dest_n)
        memcpy(out_reply(o), self.ack_prefix_p, prefix)
        memcpy(out_reply(o) + prefix, number_text, numbers)
        if hdr_n:
            p = begin_header(out_hdr(o), sm.hdr, sm.hdr_n)
            put_text(put(p, line, line_n), CRLF)
            if not self.cfg.headers_only:
                o.body = sm.hdr + sm.hdr_n
                o.body_hdr_n = 0
                o.body_n = sm.msg_n
        if wr != NULL and wr.n <= 0:
            if wrb > 0:
                self.batch_completed(wr, wrn, wrb)
            free(wr)
        if self.cfg.rate > 0:
            self.tokens -= size
        self.replay_ts = sm.ts
        self.note_delivery(ps, sm, dc, wall, dest_n + prefix + numbers + hdr_n + o.body_n)
        return True

    cdef void batch_completed(self, WaitingRequest *wr, int64_t n, int64_t bytes) noexcept nogil:
        cdef char[96] fields
        snprintf(
            fields, 96, b"Nats-Pending-Messages: %lld\r\nNats-Pending-Bytes: %lld\r\n", <long long> n,
            <long long> bytes)
        outq_status(&self.out, wr.reply, wr.reply_n, NULL, 0, b"409 Batch Completed", fields)

    cdef void note_delivery(
        self, PollState *ps, const StoreMsg *sm, uint64_t dc, int64_t wall, int64_t size
    ) noexcept nogil:
        cdef uint64_t dseq = self.dseq
        self.dseq += 1
        if self.maxpb > 0:
            self.pbytes += size
        self.update_delivered(dseq, sm.seq, dc, wall, wall)
        if self.cfg.ack_policy == POLICY_NONE:
            self.adflr = dseq
            self.asflr = sm.seq
        else:
            pending_track(
                &self.pending, sm.seq, dseq, wall,
                time_after(wall, self.wait_of(pending_rdc(&self.pending, sm.seq))))
        if self.maxpb > 0 and self.need_flow_control(size):
            self.send_flow_control(ps)
        if self.cfg.push:
            if self.cfg.heartbeat:
                self.heartbeat_at = time_after(ps.now, self.cfg.heartbeat)
        elif self.cfg.inactive:
            self.waiting.last = ps.now

    # -- flow control ------------------------------------------------------------------------------------------------

    cdef bint need_flow_control(self, int64_t size) noexcept nogil:
        if self.fcid_n == 0:
            if self.pbytes > self.maxpb // 2:
                return True
            return (
                self.cfg.ack_policy == POLICY_FLOW_CONTROL and self.cfg.max_ack_pending != 0
                and self.pending.n >= self.cfg.max_ack_pending
            )
        if self.pbytes - self.fcsz >= self.maxpb:
            self.fcsz += size
        return False

    cdef void send_flow_control(self, PollState *ps) noexcept nogil:
        cdef int i
        if not self.cfg.push:
            return
        memcpy(self.fcid, self.fc_prefix_p, self.fc_prefix_n)
        for i in range(4):
            self.fcid[self.fc_prefix_n + i] = DIGITS[poller_random(ps) % BASE]
        self.fcid_n = self.fc_prefix_n + 4
        self.fcsz = self.pbytes
        outq_status(&self.out, self.dsubj, self.dsubj_n, self.fcid, self.fcid_n, b"100 FlowControl Request", b"")

    # -- sending -----------------------------------------------------------------------------------------------------

    cdef void send_all(self, PollState *ps, OutQ *q, bint done) noexcept nogil:
        cdef Outgoing *o
        cdef size_t at = 0
        cdef RouteOutcome outcome
        cdef bint failed = False, worked = False
        while at < q.n:
            o = <Outgoing *> (q.p + at)
            at += o.size
            if o.hdr_n:
                outcome = publish_now(
                    ps, self.stream, out_dest(o), o.dest_n, o.subject, o.subject_n, out_reply(o), o.reply_n,
                    out_hdr(o), o.hdr_n, o.body, o.body_n)
            else:
                outcome = publish_now(
                    ps, self.stream, out_dest(o), o.dest_n, o.subject, o.subject_n, out_reply(o), o.reply_n,
                    o.body, o.body_hdr_n, o.body + o.body_hdr_n, o.body_n - o.body_hdr_n)
            if o.seq == 0:
                continue
            if outcome == ROUTE_DELIVERED:
                worked = True
            else:
                failed = True   # without memory, too: it is delivered again after a rest
                pthread_mutex_lock(&self.lock)
                if not self.closed:
                    self.did_not_deliver(ps, o.seq, out_dest(o), o.dest_n)
                pthread_mutex_unlock(&self.lock)
            if done:
                self.stream.ack_msg(o.seq, ps)
        if failed:
            if not worked:
                self.rest_after_failure(ps)
            exchange8(&self.again, 1)   # this thread is in run(), which sees it

    cdef void did_not_deliver(self, PollState *ps, uint64_t sseq, const char *dest, size_t n) noexcept nogil:
        cdef WaitingRequest *wr = self.waiting.head
        cdef Entry *e
        if self.cfg.ack_policy != POLICY_NONE:
            if not pending_reserve(&self.pending):
                return   # out of memory: it is delivered again after its ack wait
            pending_set_rdc(&self.pending, sseq, pending_rdc(&self.pending, sseq) - 1)
        if self.cfg.push:
            self.active = False
            self.failed = True
            exchange8(&self.recheck, 1)
            self.held_until = ps.now + RETRY
            return
        while wr != NULL:
            if wr.reply_n == n and memcmp(wr.reply, dest, n) == 0:
                waitq_set_n(&self.waiting, wr, wr.n + 1)
                wr.d -= 1
                break
            wr = wr.next
        e = pending_find(&self.pending, sseq)
        if e != NULL and e.flags & PENDING:
            pending_enqueue(&self.pending, sseq)

    cdef void rest_after_failure(self, PollState *ps) noexcept nogil:
        """Deliver nothing for a while: no message of a slice has found a subscriber that takes it.

        A request may have interest and yet no taker: its subscriber may not receive the reply subject, or has too much
        to read. Without a rest its message would be delivered again at once, for ever. The next request ends the rest.
        """
        pthread_mutex_lock(&self.lock)
        self.held_until = self.resting = ps.now + RETRY
        pthread_mutex_unlock(&self.lock)

    # -- timers ------------------------------------------------------------------------------------------------------

    cdef void timers_due(self, PollState *ps, int64_t wall) noexcept nogil:
        cdef int64_t now = ps.now
        self.check_pending(wall)
        if self.pause_at and self.pause_at <= now:
            if self.cfg.pause_until > wall:
                # The pause ends by the wall clock, which is behind: slightly, or because it was set back.
                self.pause_at = time_after(now, time_before(self.cfg.pause_until, wall))
            else:
                self.pause_at = 0
                self.notify(CONSUMER_UNPAUSED, 0, 0, 0, 0, NULL, 0)
        if self.pinned_at and self.pinned_at <= now:
            self.unassign_pin()
            self.notify(CONSUMER_UNPINNED, 0, 0, 0, 0, NULL, 0)
        if self.heartbeat_at and self.heartbeat_at <= now:
            if self.active:
                self.send_idle_heartbeat(self.dsubj, self.dsubj_n)
                if self.cfg.ack_policy == POLICY_FLOW_CONTROL and self.pending.n and self.fcid_n == 0:
                    self.send_flow_control(ps)
            self.heartbeat_at = time_after(now, self.cfg.heartbeat)
        if self.cfg.push and exchange8(&self.recheck, 0):
            # Another thread may have removed the interest after this batch began: count from now.
            self.update_delivery_interest(self.listened_to(), monotonic_ns())
        if self.inactive_at and self.inactive_at <= now:
            self.delete_not_active(now, wall)

    cdef void arm_timer(self, PollState *ps, int64_t wall) noexcept nogil:
        cdef int64_t when = 0
        cdef Entry *e = pending_earliest(&self.pending)
        if e != NULL and e.deadline != INT64_MAX and self.has_ack_wait():
            when = time_after(ps.now, time_after(max(time_before(e.deadline, wall), <int64_t> 0), ACK_DELAY))
        when = earlier(when, self.waiting.due)
        when = earlier(when, self.inactive_at)
        when = earlier(when, self.heartbeat_at)
        when = earlier(when, self.pinned_at)
        when = earlier(when, self.pause_at)
        if self.held_until > ps.now:
            when = earlier(when, self.held_until)
        if when and (self.armed == 0 or when < self.armed):
            self.armed = when
            self.engine.arm(&self.timer, when)

    # -- interest and inactivity -------------------------------------------------------------------------------------

    cdef bint listened_to(self) noexcept nogil:
        if self.failed:
            # A message has found no subscriber although interest was reported: match the deliver subject itself.
            self.failed = False
            return (<Account> self.stream.account).sublist.has_interest(self.dsubj, self.dsubj_n)
        return load8(&self.listeners) != 0

    cdef void update_delivery_interest(self, bint interest, int64_t now) noexcept nogil:
        self.active = interest
        if interest:
            self.inactive_at = 0
        elif self.cfg.inactive and self.inactive_at == 0:
            self.inactive_at = time_after(now, self.cfg.inactive)

    cdef void delete_not_active(self, int64_t now, int64_t wall) noexcept nogil:
        cdef Entry *e
        cdef int64_t until = 0
        self.inactive_at = 0
        if self.cfg.push:
            if not self.active and not self.notify(CONSUMER_INACTIVE, 0, 0, 0, 0, NULL, 0):
                self.inactive_at = time_after(now, SECOND)
            return
        if now - self.waiting.last < self.cfg.inactive:
            self.inactive_at = time_after(self.waiting.last, self.cfg.inactive)
            return
        self.process_waiting(True, now)
        if self.waiting.n:
            self.inactive_at = time_after(now, self.cfg.inactive)
            return
        # A client may still be working on a message until its ack wait ends.
        e = pending_first(&self.pending)
        while e != NULL:
            until = max(until, e.deadline if not e.flags & QUEUED else time_after(e.ts, self.wait_of(e.rdc)))
            e = pending_next(&self.pending, e)
        until = time_after(until, self.cfg.inactive) if until else 0
        if until > wall:
            self.inactive_at = time_after(now, until - wall)
            return
        if not self.notify(CONSUMER_INACTIVE, 0, 0, 0, 0, NULL, 0):
            self.inactive_at = time_after(now, SECOND)

    # -- called by the stream ----------------------------------------------------------------------------------------

    cdef bint stored(self, uint64_t seq) noexcept nogil:
        if seq > self.npf:
            self.npc += 1
            self.npf = seq   # a message that passes several filters counts once
        return load8(&self.hungry)


cdef inline int64_t earlier(int64_t a, int64_t b) noexcept nogil:
    """The earlier of two deadlines, where 0 is none."""
    return b if a == 0 or (b and b < a) else a
