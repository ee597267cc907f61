"""The state of a consumer; see consumerstate.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.inbox cimport Event, Inbox
from gnats.includes.atomics cimport load8, store64
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.includes.times cimport time_after
from gnats.jetstream.consumer.acked cimport Acked
from gnats.jetstream.consumer.consumerentry cimport (
    OP_ACKED,
    OP_DELIVERED,
    OP_RESET,
    OP_WAITS,
    ConsumerEntry,
    ConsumerOutcome,
)
from gnats.jetstream.consumer.flowcontrol cimport flow_free
from gnats.jetstream.consumer.pending cimport pending_free
from gnats.jetstream.consumer.proposals cimport proposals_free
from gnats.jetstream.consumer.requests cimport waitq_free
from gnats.jetstream.consumer.settings cimport (
    DELIVER_ALL,
    DELIVER_BY_START_TIME,
    DELIVER_LAST,
    DELIVER_LAST_PER_SUBJECT,
)
from gnats.jetstream.consumer.skiplist cimport has_skips, skip_free
from gnats.jetstream.engine.barrier cimport js_poller_of, run_later
from gnats.jetstream.engine.barrier cimport mark_dirty as flush_later
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.index.filter cimport filter_free

cdef enum:
    TIMERS = 2    # of a consumer


cdef class ConsumerState(ConsumerBase):
    """A consumer's state; see Consumer."""

    def __cinit__(self, StreamCore stream not None, str name not None, *args, **kwargs):
        pthread_mutex_init(&self.lock, NULL)
        self.stream = stream
        self.store = stream.store
        self.engine = stream.engine
        self.name = name
        self.created = realtime_ns()
        self.timer.timer.owner = self.kicker.timer.owner = <void *> self
        self.reserved = self.engine.reserve(TIMERS)
        if not self.reserved:
            raise MemoryError

    def __dealloc__(self):
        pending_free(&self.stored.pending)
        proposals_free(&self.proposals)
        waitq_free(&self.waiting)
        free(self.out.p)
        free(self.spare.p)
        flow_free(&self.flow)
        skip_free(&self.skips)
        free(self.dsubj)
        free(self.cfg.backoff)
        filter_free(self.filter)
        pthread_mutex_destroy(&self.lock)
        self.release_timers()

    cdef void release_timers(self) noexcept:
        if self.reserved and self.engine is not None:
            self.engine.reserve(-TIMERS)
        self.reserved = False


# -- where it begins ---------------------------------------------------------------------------------------------------

cdef bint select_starting_seq(ConsumerState o, int policy, uint64_t start_seq, int64_t start_time) noexcept nogil:
    cdef uint64_t first, last, found = 0, found_last = 0
    cdef int64_t n = 0
    cdef bint one_each = o.stream.cfg.max_msgs_per == 1
    skip_free(&o.skips)
    pthread_mutex_lock(&o.store.lock)
    first = o.store.first_seq
    last = o.store.last_seq
    if start_seq:
        o.sseq = start_seq
    elif policy == DELIVER_ALL or (policy == DELIVER_LAST_PER_SUBJECT and one_each):
        o.sseq = first
    elif policy == DELIVER_LAST:
        if o.filter != NULL:
            o.store.filtered_state(1, o.filter, &found, &found_last)
        o.sseq = found_last if o.filter != NULL else last
    elif policy == DELIVER_LAST_PER_SUBJECT:
        n = o.store.multi_last_seqs(o.filter, 0, -1, &o.skips.seqs)
        o.skips.n = <size_t> n if n > 0 else 0
        o.skips.resume = last
        o.sseq = o.skips.seqs[0] if has_skips(&o.skips) else last
    elif policy == DELIVER_BY_START_TIME:
        o.sseq = o.store.seq_from_time(start_time)
        if o.filter != NULL:
            # Skip to the first message that passes the filter, rather than look at each on the way.
            o.store.filtered_state(o.sseq, o.filter, &found, &found_last)
            if o.sseq < found < last:
                o.sseq = found
    else:
        o.sseq = last + 1
    if first == 0 and not start_seq:
        o.sseq = 1
    elif o.sseq > last and not start_seq:
        o.sseq = last + 1
    elif o.sseq < first:
        o.sseq = first
    pthread_mutex_unlock(&o.store.lock)
    if o.sseq == 0:
        o.sseq = 1
    o.dseq = 1
    o.adflr = 0
    o.asflr = o.sseq - 1
    propose_position(o, OP_RESET)
    return n >= 0


cdef void begin_at(ConsumerState o, uint64_t seq) noexcept nogil:
    cdef bint count = o.sseq != seq or o.stored.pending.n
    skip_free(&o.skips)
    o.sseq = seq
    o.dseq = 1
    o.adflr = 0
    o.asflr = seq - 1
    o.ldt = o.lat = 0
    propose_position(o, OP_RESET)
    if count:
        stream_num_pending(o)


# -- what is pending for delivery --------------------------------------------------------------------------------------

cdef bint on_stored(ConsumerBase base, uint64_t seq) noexcept nogil:
    return count_stored(<ConsumerState> base, seq)


cdef inline bint count_stored(ConsumerState o, uint64_t seq) noexcept nogil:
    if seq > o.npf:
        o.npc += 1
        o.npf = seq   # a message that passes several filters counts once
    return load8(&o.hungry)


cdef void stream_num_pending(ConsumerState o) noexcept nogil:
    pthread_mutex_lock(&o.store.lock)
    o.npc = <int64_t> o.store.num_pending(o.sseq, o.filter, o.cfg.last_per_subject)
    o.npf = o.store.last_seq
    o.counted_off = 0   # where the stream lost its end, other messages get the sequences
    store64(&o.ahead, o.sseq)
    store64(&o.low, 0 if o.stored.pending.nredelivered else lowest_pending(o))
    pthread_mutex_unlock(&o.store.lock)


# -- changes of the stored state ---------------------------------------------------------------------------------------

cdef void mark_dirty(ConsumerState o) noexcept nogil:
    if not o.dirty and not o.cfg.memory:
        o.dirty = notify(o, CONSUMER_DIRTY, 0, 0, 0, 0, NULL, 0)


cdef ConsumerOutcome update_delivered(
    ConsumerState o, uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts, int64_t wall
) noexcept nogil:
    cdef ConsumerEntry e
    o.ldt = wall
    e.op = OP_DELIVERED
    e.dseq = dseq
    e.sseq = sseq
    e.dc = dc
    e.ts = ts
    return o.log.propose(o, &e, NULL)


cdef ConsumerOutcome update_acks(
    ConsumerState o, int kind, uint64_t dseq, uint64_t sseq, int64_t wall, Acked *acked
) noexcept nogil:
    cdef ConsumerEntry e
    o.lat = wall
    e.op = OP_ACKED
    e.kind = <uint8_t> kind
    e.dseq = dseq
    e.sseq = sseq
    return o.log.propose(o, &e, acked)


cdef ConsumerOutcome restart_wait(ConsumerState o, uint64_t sseq, int64_t ts, bint asked) noexcept nogil:
    cdef ConsumerEntry e
    e.op = OP_WAITS
    e.kind = asked
    e.sseq = sseq
    e.ts = ts
    return o.log.propose(o, &e, NULL)


cdef ConsumerOutcome propose_of(ConsumerState o, int op, uint64_t sseq) noexcept nogil:
    cdef ConsumerEntry e
    e.op = <uint8_t> op
    e.sseq = sseq
    return o.log.propose(o, &e, NULL)


cdef ConsumerOutcome propose_position(ConsumerState o, int op) noexcept nogil:
    cdef ConsumerEntry e
    e.op = <uint8_t> op
    e.dseq = o.dseq - 1
    e.sseq = o.sseq - 1
    e.floor.consumer = o.adflr
    e.floor.stream = o.asflr
    return o.log.propose(o, &e, NULL)


# -- events ------------------------------------------------------------------------------------------------------------

cdef inline bint is_advice(int what) noexcept nogil:
    """Return whether the control plane only reports the event, which may then be dropped."""
    return (
        CONSUMER_ACKED <= what <= CONSUMER_MAX_DELIVERIES or what == CONSUMER_BAD_NAK or what == CONSUMER_ACK_BEYOND)


cdef bint notify(
    ConsumerState o, int what, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t ack_time, const char *text,
    size_t n
) noexcept nogil:
    cdef Notice notice
    cdef Event *ev = (<Inbox> o.engine.control.inbox).jetstream_event(<void *> o, sizeof(Notice) + n)
    if ev == NULL:
        return False
    ev.a = what
    ev.may_drop = is_advice(what)
    notice.sseq = sseq
    notice.dseq = dseq
    notice.deliveries = deliveries
    notice.ack_time = ack_time
    memcpy(ev.data, &notice, sizeof(Notice))   # the data of an event is not aligned
    if n:
        memcpy(ev.data + sizeof(Notice), text, n)
    (<Inbox> o.engine.control.inbox).post(ev)
    return True


cdef void suppress_deletion(ConsumerState o, int64_t now) noexcept nogil:
    if o.cfg.inactive == 0:
        return
    o.waiting.last = now
    if o.inactive_at:
        o.inactive_at = time_after(now, o.cfg.inactive)
        if o.armed == 0 or o.inactive_at < o.armed:
            # It waited for a longer ack wait.
            o.armed = o.inactive_at
            o.engine.arm(&o.timer, o.inactive_at)


cdef void wake(ConsumerState o, PollState *ps) noexcept nogil:
    if not run_later(js_poller_of(ps), o):
        kick(o)   # needs no memory


cdef void hand_over(ConsumerState o, PollState *ps) noexcept nogil:
    if not flush_later(js_poller_of(ps), o.raft):
        kick(o)   # needs no memory


cdef void kick(ConsumerState o) noexcept nogil:
    o.engine.arm(&o.kicker, 1)


cdef void on_kick(ConsumerBase base) noexcept nogil:
    kick(<ConsumerState> base)
