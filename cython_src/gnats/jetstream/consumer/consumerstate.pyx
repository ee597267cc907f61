"""The state of a consumer; see consumerstate.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.inbox cimport Event, Inbox
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.includes.times cimport time_after
from gnats.jetstream.consumer.pending cimport pending_free
from gnats.jetstream.consumer.requests cimport waitq_free
from gnats.jetstream.engine.barrier cimport local_of, run_later
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
        self.timer.fn = on_timer
        self.kicker.fn = on_kick
        self.reserved = self.engine.reserve(TIMERS)
        if not self.reserved:
            raise MemoryError

    def __dealloc__(self):
        pending_free(&self.pending)
        waitq_free(&self.waiting)
        free(self.out.p)
        free(self.skip_list)
        free(self.dsubj)
        free(self.cfg.backoff)
        filter_free(self.filter)
        pthread_mutex_destroy(&self.lock)
        self.release_timers()

    cdef void release_timers(self) noexcept:
        if self.reserved and self.engine is not None:
            self.engine.reserve(-TIMERS)
        self.reserved = False

    # -- where it begins ---------------------------------------------------------------------------------------------

    cdef bint select_starting_seq(self, int policy, uint64_t start_seq, int64_t start_time) noexcept nogil:
        cdef uint64_t first, last, found = 0, found_last = 0
        cdef int64_t n = 0
        cdef bint one_each = self.stream.cfg.max_msgs_per == 1
        free(self.skip_list)
        self.skip_list = NULL
        self.skip_n = self.skip_at = 0
        pthread_mutex_lock(&self.store.lock)
        first = self.store.first_seq
        last = self.store.last_seq
        if start_seq:
            self.sseq = start_seq
        elif policy == DELIVER_ALL or (policy == DELIVER_LAST_PER_SUBJECT and one_each):
            self.sseq = first
        elif policy == DELIVER_LAST:
            if self.filter != NULL:
                self.store.filtered_state(1, self.filter, &found, &found_last)
            self.sseq = found_last if self.filter != NULL else last
        elif policy == DELIVER_LAST_PER_SUBJECT:
            n = self.store.multi_last_seqs(self.filter, 0, -1, &self.skip_list)
            self.skip_n = <size_t> n if n > 0 else 0
            self.skip_resume = last
            self.sseq = self.skip_list[0] if self.skip_n else last
        elif policy == DELIVER_BY_START_TIME:
            self.sseq = self.store.seq_from_time(start_time)
            if self.filter != NULL:
                # Skip to the first message that passes the filter, rather than look at each on the way.
                self.store.filtered_state(self.sseq, self.filter, &found, &found_last)
                if self.sseq < found < last:
                    self.sseq = found
        else:
            self.sseq = last + 1
        if first == 0 and not start_seq:
            self.sseq = 1
        elif self.sseq > last and not start_seq:
            self.sseq = last + 1
        elif self.sseq < first:
            self.sseq = first
        pthread_mutex_unlock(&self.store.lock)
        if self.sseq == 0:
            self.sseq = 1
        self.dseq = 1
        self.adflr = 0
        self.asflr = self.sseq - 1
        memset(&self.delivered, 0, sizeof(SeqPair))
        memset(&self.floor, 0, sizeof(SeqPair))
        self.delivered.stream = self.floor.stream = self.sseq - 1
        return n >= 0

    # -- what is pending for delivery --------------------------------------------------------------------------------

    cdef int64_t num_pending(self) noexcept nogil:
        return self.npc if self.npc > 0 else 0

    cdef void stream_num_pending(self) noexcept nogil:
        pthread_mutex_lock(&self.store.lock)
        self.npc = <int64_t> self.store.num_pending(self.sseq, self.filter, self.cfg.last_per_subject)
        self.npf = self.store.last_seq
        pthread_mutex_unlock(&self.store.lock)

    # -- the state that is stored ------------------------------------------------------------------------------------

    cdef bint has_ack_wait(self) noexcept nogil:
        return self.cfg.ack_wait != 0 or self.cfg.nbackoff != 0

    cdef int64_t wait_of(self, int64_t rdc) noexcept nogil:
        if self.cfg.nbackoff == 0:
            return self.cfg.ack_wait
        if rdc < 0:
            rdc = 0
        return self.cfg.backoff[min(rdc, <int64_t> self.cfg.nbackoff - 1)]

    cdef void mark_dirty(self) noexcept nogil:
        if not self.dirty and not self.cfg.memory:
            self.dirty = self.notify(CONSUMER_DIRTY, 0, 0, 0, 0, NULL, 0)

    cdef void update_delivered(
        self, uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts, int64_t wall
    ) noexcept nogil:
        cdef ConsumerEntry e
        self.ldt = wall
        e.op = OP_DELIVERED
        e.was_pending = False
        e.dseq = dseq
        e.sseq = sseq
        e.dc = dc
        e.ts = ts
        self.log.propose(self, &e)

    cdef void update_acks(self, uint64_t dseq, uint64_t sseq, bint was_pending, int64_t wall) noexcept nogil:
        cdef ConsumerEntry e
        self.lat = wall
        e.op = OP_ACKED
        e.was_pending = was_pending
        e.dseq = dseq
        e.sseq = sseq
        e.dc = 0
        e.ts = 0
        self.log.propose(self, &e)

    # -- events ------------------------------------------------------------------------------------------------------

    cdef bint notify(
        self, int what, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t ack_time, const char *text, size_t n
    ) noexcept nogil:
        cdef Notice notice
        cdef Event *ev = (<Inbox> self.engine.control.inbox).jetstream_event(<void *> self, sizeof(Notice) + n)
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
        (<Inbox> self.engine.control.inbox).post(ev)
        return True

    cdef void suppress_deletion(self, int64_t now) noexcept nogil:
        if self.cfg.inactive == 0:
            return
        self.waiting.last = now
        if self.inactive_at:
            self.inactive_at = time_after(now, self.cfg.inactive)

    cdef void wake(self, PollState *ps) noexcept nogil:
        if not run_later(local_of(ps), self):
            self.kick()   # needs no memory

    cdef void kick(self) noexcept nogil:
        self.engine.arm(&self.kicker, 1)


cdef inline bint is_advice(int what) noexcept nogil:
    """Does the control plane only report the event? It may then be dropped."""
    return (
        CONSUMER_ACKED <= what <= CONSUMER_MAX_DELIVERIES or what == CONSUMER_BAD_NAK or what == CONSUMER_ACK_BEYOND)


cdef void on_timer(void *owner, PollState *ps) noexcept nogil:
    pthread_mutex_lock(&(<ConsumerState> owner).lock)
    set_armed(<ConsumerState> owner, 0)
    pthread_mutex_unlock(&(<ConsumerState> owner).lock)
    (<ConsumerState> owner).run(ps)


cdef void on_kick(void *owner, PollState *ps) noexcept nogil:
    pthread_mutex_lock(&(<ConsumerState> owner).lock)
    begin(<ConsumerState> owner)
    pthread_mutex_unlock(&(<ConsumerState> owner).lock)
    (<ConsumerState> owner).run(ps)


cdef void begin(ConsumerState o) noexcept nogil:
    o.begun = o.started


cdef void set_armed(ConsumerState o, int64_t when) noexcept nogil:
    o.armed = when
