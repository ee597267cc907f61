"""Handle a consumer's acknowledgements; see consumeracks.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy, strlen

from gnats.core.net.pollstate cimport PollState, poller_random
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport subject_is_subset_match
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_after, time_before
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
from gnats.jetstream.consumer.consumerstate cimport (
    CONSUMER_ACK_BEYOND,
    CONSUMER_ACKED,
    CONSUMER_BAD_NAK,
    CONSUMER_MAX_DELIVERIES,
    CONSUMER_NAKED,
    CONSUMER_TERMINATED,
    POLICY_ALL,
    POLICY_EXPLICIT,
    POLICY_NONE,
)
from gnats.jetstream.consumer.pending cimport (
    PENDING,
    QUEUED,
    Entry,
    pending_dequeue,
    pending_earliest,
    pending_enqueue,
    pending_find,
    pending_first,
    pending_forget,
    pending_free,
    pending_next,
    pending_pop,
    pending_rdc,
    pending_set_deadline,
    pending_set_rdc,
    pending_untrack,
)
from gnats.jetstream.engine.barrier cimport batch_time, local_of, publish_now
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.state.streamcore cimport LIMITS_POLICY
from gnats.store.base cimport STORE_DELETED, STORE_NOT_FOUND, StoreMsg
from gnats.store.index.filter cimport filter_match

cdef enum:
    REASON_ROOM = 4096        # the most bytes of a reason or an invalid delay that an event has

cdef int64_t MIN_WAIT = 1000000    # ns, the shortest ack wait


cdef void acked_init(Acked *acked) noexcept nogil:
    acked.seqs = acked.few
    acked.n = 0
    acked.cap = 8


cdef bint acked_reserve(Acked *acked, size_t n) noexcept nogil:
    """Make room for n more."""
    cdef size_t cap = acked.cap
    cdef uint64_t *grown
    while cap - acked.n < n:
        cap *= 2
    if cap == acked.cap:
        return True
    grown = <uint64_t *> realloc(NULL if acked.seqs == acked.few else acked.seqs, cap * sizeof(uint64_t))
    if grown == NULL:
        return False
    if acked.seqs == acked.few:
        memcpy(grown, acked.few, sizeof(acked.few))
    acked.seqs = grown
    acked.cap = cap
    return True


cdef bint acked_add(Acked *acked, uint64_t seq) noexcept nogil:
    if not acked_reserve(acked, 1):
        return False
    acked.seqs[acked.n] = seq
    acked.n += 1
    return True


cdef int by_seq(const void *a, const void *b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t *> a)[0], y = (<const uint64_t *> b)[0]
    return -1 if x < y else x > y


cdef class ConsumerAcks(ConsumerState):
    """A consumer's acknowledgements; see Consumer."""

    cdef void process_ack(
        self, PollState *ps, const Slice *subject, const Slice *reply, const char *msg, size_t n
    ) noexcept nogil:
        cdef AckInfo info
        cdef Acked acked
        cdef const char *rest
        cdef size_t rest_n
        cdef int64_t wall = batch_time(local_of(ps))
        cdef int what = parse_ack(msg, n, &rest, &rest_n)
        cdef bint answer, signal = False
        acked_init(&acked)
        ack_reply_info(subject.p, subject.n, &info)
        answer = info.sseq != 0
        pthread_mutex_lock(&self.lock)
        if self.closed:
            pthread_mutex_unlock(&self.lock)
            return
        self.suppress_deletion(ps.now)
        if what == ACK_ACK:
            answer = self.process_ack_msg(ps, info.sseq, info.dseq, info.dc, wall, &acked, &signal)
        elif what == ACK_NEXT:
            self.process_ack_msg(ps, info.sseq, info.dseq, info.dc, wall, &acked, &signal)
            answer = False
        elif what == ACK_NAK:
            signal = self.process_nak(info.sseq, info.dseq, info.dc, wall, rest, rest_n)
        elif what == ACK_PROGRESS:
            self.progress_update(info.sseq, wall)
        elif what == ACK_TERM:
            rest = trim(rest, &rest_n)
            answer = self.process_term(
                info.sseq, info.dseq, info.dc, wall, rest, min(rest_n, <size_t> REASON_ROOM), &acked, &signal)
        pthread_mutex_unlock(&self.lock)
        self.tell_stream(ps, &acked)
        if what == ACK_NEXT:
            self.process_next_msg_request(ps, reply.p, reply.n, rest, rest_n)
        if answer and reply.n:
            publish_now(ps, self.stream, reply.p, reply.n, NULL, 0, NULL, 0, NULL, 0, b"", 0)
        if signal:
            self.wake(ps)

    cdef void tell_stream(self, PollState *ps, Acked *acked) noexcept nogil:
        cdef size_t i
        for i in range(acked.n):
            self.stream.ack_msg(acked.seqs[i], ps)
        if acked.seqs != acked.few:
            free(acked.seqs)

    cdef bint process_ack_msg(
        self, PollState *sampler, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, Acked *acked, bint *signal
    ) noexcept nogil:
        cdef Entry *e
        cdef Entry *following
        cdef bint was_pending, tell = self.cfg.retention != LIMITS_POLICY
        cdef bint full = self.cfg.max_ack_pending and self.pending.n >= self.cfg.max_ack_pending
        cdef bint beyond
        if sseq >= self.sseq and (not self.cfg.flow_control or self.cfg.ack_policy == POLICY_ALL):
            pthread_mutex_lock(&self.store.lock)
            beyond = sseq > self.store.last_seq
            pthread_mutex_unlock(&self.store.lock)
            if beyond:
                self.notify(CONSUMER_ACK_BEYOND, sseq, dseq, dc, 0, NULL, 0)
            return False
        if self.cfg.ack_policy == POLICY_NONE:
            return tell
        if self.cfg.ack_policy == POLICY_EXPLICIT:
            e = pending_find(&self.pending, sseq)
            was_pending = e != NULL and e.flags & PENDING
            if was_pending:
                if sampler != NULL:
                    self.sample_ack(sampler, e, sseq, dseq, dc)
                signal[0] |= full
                dseq = e.dseq
            if e != NULL:
                pending_forget(&self.pending, e)
            if was_pending:
                self.move_ack_floor(dseq, sseq)
            if tell:
                acked_add(acked, sseq)
        else:
            # The client sends dseq: it may be any number, and is too high after a reset. An ack floor above the last
            # delivery would make the state invalid.
            dseq = min(dseq, self.dseq - 1)
            if dseq <= self.adflr or sseq <= self.asflr:
                return True
            if tell and not acked_reserve(acked, self.pending.n + 1):
                # The stream would keep what the consumer has forgotten. Leave it to a later ack.
                if sampler != NULL:
                    report_shortage(sampler)
                return False
            signal[0] |= full
            e = pending_find(&self.pending, sseq)
            was_pending = e != NULL and e.flags & PENDING
            self.adflr = dseq
            self.asflr = sseq
            if tell:
                acked_add(acked, sseq)
            e = pending_first(&self.pending)
            while e != NULL and e.seq <= sseq:
                following = pending_next(&self.pending, e)
                if tell and e.seq != sseq:
                    acked_add(acked, e.seq)
                pending_forget(&self.pending, e)
                e = following
        self.update_acks(dseq, sseq, was_pending, wall)
        return True

    cdef void sample_ack(
        self, PollState *sampler, const Entry *e, uint64_t sseq, uint64_t dseq, uint64_t dc
    ) noexcept nogil:
        if self.cfg.sample == 0:
            return
        if self.cfg.sample < 100 and poller_random(sampler) % 100 > self.cfg.sample:
            return
        self.notify(CONSUMER_ACKED, sseq, dseq, dc, time_before(realtime_ns(), e.ts), NULL, 0)

    cdef void move_ack_floor(self, uint64_t dseq, uint64_t sseq) noexcept nogil:
        cdef Entry *e = pending_first(&self.pending)
        if e == NULL:
            self.adflr = self.dseq - 1
            self.asflr = self.sseq - 1
        elif dseq == self.adflr + 1:
            self.adflr = dseq
            self.asflr = sseq
            # Only after a reset can messages below the floor be pending.
            while e != NULL and e.seq <= sseq:
                e = pending_next(&self.pending, e)
            if e != NULL and e.dseq:
                self.adflr = e.dseq - 1
                self.asflr = e.seq - 1

    cdef bint process_nak(
        self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *rest, size_t n
    ) noexcept nogil:
        cdef Entry *e = pending_find(&self.pending, sseq)
        cdef int64_t delay
        cdef bint bad
        if dseq <= self.adflr or dseq > self.dseq or e == NULL or not e.flags & PENDING:
            return False
        self.notify(CONSUMER_NAKED, sseq, dseq, dc, 0, NULL, 0)
        if nak_delay(rest, n, &delay, &bad):
            pending_dequeue(&self.pending, e)
            # Move its delivery into the past, so that its ack wait ends after the delay.
            e.ts = time_after(time_before(wall, self.cfg.ack_wait), delay)
            pending_set_deadline(&self.pending, e, time_after(e.ts, self.wait_of(e.rdc)))
            self.update_delivered(e.dseq, sseq, dc, e.ts, wall)
            return True   # run() arms the timer
        if bad:
            rest = trim(rest, &n)
            self.notify(CONSUMER_BAD_NAK, sseq, dseq, dc, 0, rest, min(n, <size_t> REASON_ROOM))
        if not e.flags & QUEUED:
            pending_enqueue(&self.pending, sseq)
        return True

    cdef void progress_update(self, uint64_t sseq, int64_t wall) noexcept nogil:
        cdef Entry *e = pending_find(&self.pending, sseq)
        if e != NULL and e.flags & PENDING:
            e.ts = wall
            pending_set_deadline(&self.pending, e, time_after(wall, self.wait_of(e.rdc)))
            self.update_delivered(e.dseq, sseq, 1, wall, wall)

    cdef bint process_term(
        self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *reason, size_t n, Acked *acked,
        bint *signal
    ) noexcept nogil:
        cdef bint answer = self.process_ack_msg(NULL, sseq, dseq, dc, wall, acked, signal)
        self.notify(CONSUMER_TERMINATED, sseq, dseq, dc, 0, reason, n)
        return answer

    cdef void process_deleted(
        self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, Acked *acked, bint *signal
    ) noexcept nogil:
        cdef const char *reason = b"Unacknowledged message was deleted"
        self.process_term(sseq, dseq, dc, wall, reason, strlen(reason), acked, signal)

    # -- redelivery --------------------------------------------------------------------------------------------------

    cdef bint has_max_deliveries(self, uint64_t sseq, int64_t wall) noexcept nogil:
        cdef Entry *e
        cdef uint64_t dseq, dc
        cdef int64_t ts, rdc = pending_rdc(&self.pending, sseq)
        if self.cfg.max_deliver == 0:
            return False
        dc = <uint64_t> rdc if rdc > 0 else 1
        if dc < self.cfg.max_deliver:
            return False
        if dc == self.cfg.max_deliver:
            self.notify(CONSUMER_MAX_DELIVERIES, sseq, 0, dc, 0, NULL, 0)
        e = pending_find(&self.pending, sseq)
        if e == NULL:
            return True
        pending_set_rdc(&self.pending, sseq, <int64_t> dc)   # keeps the entry: need_ack() still wants the message
        if e.flags & PENDING:
            dseq = e.dseq
            ts = e.ts
            pending_untrack(&self.pending, e)
            self.update_delivered(dseq, sseq, dc + 1, ts, wall)
            self.move_ack_floor(dseq, sseq)
        return True

    cdef bint check_pending(self, int64_t wall) noexcept nogil:
        cdef Entry *e = pending_earliest(&self.pending)
        cdef uint64_t first, seq
        cdef Acked expired
        if e == NULL or e.deadline > wall or not self.has_ack_wait():
            return self.pending.nqueued != 0
        # Messages that are removed after this look at the store are noticed when they are delivered again.
        pthread_mutex_lock(&self.store.lock)
        first = self.store.first_seq
        pthread_mutex_unlock(&self.store.lock)
        acked_init(&expired)
        while e != NULL and e.deadline <= wall:
            seq = e.seq
            if seq < first or seq <= self.asflr:
                self.asflr = max(self.asflr, seq)
                self.adflr = max(self.adflr, e.dseq)
                pending_forget(&self.pending, e)
                self.mark_dirty()
            elif e.flags & QUEUED:
                pending_set_deadline(&self.pending, e, INT64_MAX)
            elif not self.has_max_deliveries(seq, wall):
                # Move it behind the others in the heap, until expire_entries() has all of them.
                pending_set_deadline(&self.pending, e, self.next_deadline(wall, e))
                if not acked_add(&expired, seq):
                    break   # out of memory: the others later
            e = pending_earliest(&self.pending)
        self.expire_entries(expired.seqs, expired.n, wall)
        if expired.seqs != expired.few:
            free(expired.seqs)
        if self.pending.n == 0:
            self.adflr = self.dseq - 1
            self.asflr = self.sseq - 1
        return self.pending.nqueued != 0

    cdef bint expire_entries(self, uint64_t *seqs, size_t n, int64_t wall) noexcept nogil:
        # Queued messages have no deadline. Their ack wait begins anew with their redelivery.
        cdef Entry *e
        cdef int64_t off = 0
        cdef size_t i
        if n == 0:
            return False
        qsort(seqs, n, sizeof(uint64_t), by_seq)
        for i in range(n):
            pending_enqueue(&self.pending, seqs[i])
            e = pending_find(&self.pending, seqs[i])
            if i == 0:
                off = time_before(wall, e.ts)
            e.ts = time_after(e.ts, off)
            pending_set_deadline(&self.pending, e, INT64_MAX)
        return True

    cdef int64_t next_deadline(self, int64_t start, const Entry *e) noexcept nogil:
        return time_after(start, max(self.wait_of(e.rdc), MIN_WAIT))

    cdef void force_expire_pending(self, int64_t wall) noexcept nogil:
        cdef Acked expired
        cdef Entry *e = pending_first(&self.pending)
        cdef Entry *following
        acked_init(&expired)
        while e != NULL:
            following = pending_next(&self.pending, e)
            if not e.flags & QUEUED and not self.has_max_deliveries(e.seq, wall) and not acked_add(&expired, e.seq):
                break
            e = following
        self.expire_entries(expired.seqs, expired.n, wall)
        if expired.seqs != expired.few:
            free(expired.seqs)

    cdef bint process_next_msg_request(
        self, PollState *ps, const char *reply, size_t rn, const char *msg, size_t n
    ) noexcept nogil:
        return False

    # -- called by the stream ----------------------------------------------------------------------------------------

    cdef bint need_ack(self, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
        cdef Entry *e
        cdef bint need = False
        pthread_mutex_lock(&self.lock)
        if not self.closed and filter_match(self.filter, subject, n):
            e = pending_find(&self.pending, sseq)
            need = sseq > self.asflr
            if need and self.cfg.ack_policy == POLICY_EXPLICIT and sseq < self.sseq:
                need = e != NULL and e.flags & PENDING
            # A message that had max_deliver deliveries and no ack stays in the stream.
            need = need or (e != NULL and e.rdc != 0)
        pthread_mutex_unlock(&self.lock)
        return need

    cdef void removed(self, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil:
        cdef Entry *e
        cdef Acked acked
        cdef int64_t wall = realtime_ns(), rdc
        cdef bint signal = False
        acked_init(&acked)
        pthread_mutex_lock(&self.lock)
        if not self.closed:
            if sseq >= self.sseq and filter_match(self.filter, subject, n):
                pthread_mutex_lock(&self.store.lock)
                self.npc -= 1
                pthread_mutex_unlock(&self.store.lock)
            e = pending_find(&self.pending, sseq)
            if e != NULL and e.flags & PENDING:
                rdc = max(e.rdc, <int64_t> 1)
                self.process_deleted(sseq, e.dseq, <uint64_t> rdc, wall, &acked, &signal)
            elif e != NULL and e.rdc:
                pending_set_rdc(&self.pending, sseq, 0)
                self.mark_dirty()
            if signal:
                self.kick()   # under the lock, so that a closed consumer is never kicked
        pthread_mutex_unlock(&self.lock)
        # The message is gone already: the stream need not be told.
        if acked.seqs != acked.few:
            free(acked.seqs)

    cdef void purged(
        self, uint64_t first, uint64_t last, const char *subject, uint32_t n, uint64_t subject_first
    ) noexcept nogil:
        cdef uint64_t start = first
        cdef bint ours = True, wider = False
        pthread_mutex_lock(&self.lock)
        if n and self.is_equal_or_subset_match(subject, n):
            start = subject_first
        elif n:
            ours = wider = filter_match(self.filter, subject, n)
        if not self.closed:
            if ours:
                self.purge(last + 1 if start == 0 and not wider else start, wider)
            self.stream_num_pending()
        pthread_mutex_unlock(&self.lock)

    cdef bint is_equal_or_subset_match(self, const char *subject, uint32_t n) noexcept nogil:
        cdef uint32_t i
        if self.filter == NULL:
            return False
        for i in range(self.filter.n):
            if not subject_is_subset_match(self.filter.subjects[i].at, self.filter.subjects[i].n, subject, n):
                return False
        return True

    cdef void purge(self, uint64_t first, bint wider) noexcept nogil:
        cdef Entry *e = pending_first(&self.pending)
        cdef Entry *following
        cdef StoreMsg sm
        cdef int64_t wall = realtime_ns()
        cdef uint64_t seq, dseq
        cdef int rc
        cdef bint gone
        if self.sseq < first:
            self.sseq = first
        if self.asflr < first:
            self.asflr = first - 1
            while e != NULL:
                following = pending_next(&self.pending, e)
                seq = e.seq
                gone = seq <= self.asflr
                if not gone and wider:
                    pthread_mutex_lock(&self.store.lock)
                    rc = self.store.load(seq, &sm)
                    pthread_mutex_unlock(&self.store.lock)
                    # a message that cannot be read now is still there
                    gone = rc == STORE_NOT_FOUND or rc == STORE_DELETED
                if gone:
                    dseq = e.dseq
                    self.adflr = max(self.adflr, dseq)
                    self.dseq = max(self.dseq, self.adflr)
                    pending_forget(&self.pending, e)
                    self.update_acks(dseq, seq, True, wall)
                e = following
        if self.pending.n == 0:
            pending_free(&self.pending)
            self.adflr = self.dseq - 1
            self.asflr = self.sseq - 1
        while self.pending.nqueued:
            e = pending_find(&self.pending, pending_pop(&self.pending))
            if e != NULL and e.flags & PENDING:
                pending_set_deadline(&self.pending, e, self.next_deadline(wall, e))   # redelivered when that ends
        self.delivered.consumer = self.dseq - 1
        self.delivered.stream = self.sseq - 1
        self.floor.consumer = self.adflr
        self.floor.stream = self.asflr
        self.mark_dirty()
