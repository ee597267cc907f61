"""The state of a stream; see streamcore.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_unregister
from gnats.core.subjects.subject cimport subject_has_wildcard
from gnats.includes.atomics cimport store32
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.times cimport time_after, time_before
from gnats.jetstream.engine.barrier cimport (
    StreamBase,
    barrier_flushed,
    barrier_synced,
    js_poller_of,
    mark_dirty,
    stream_failed,
)
from gnats.jetstream.engine.consumerbase cimport ConsumerBase, consumer_need_ack, consumer_purged, consumer_removed
from gnats.jetstream.engine.usage cimport usage_add
from gnats.jetstream.state.consumerlist cimport (
    WITH_EVERYTHING,
    WITH_SUBJECT,
    WITH_SUBJECTS,
    Concerned,
    concerned_at,
    concerned_free,
    has_consumers,
)
from gnats.jetstream.state.dedupe cimport dedupe_add, dedupe_free
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.index.filter cimport Filter, filter_free
from gnats.store.scheduling cimport next_schedule
from gnats.store.index.stree cimport STreeFilter

cdef enum:
    FEW_REMOVED = 512    # bytes of removals that leave() copies to its stack
    TIMERS = 4           # of a stream

cdef int64_t SOON = 10000000    # ns; the shortest wait of expiry_timer and schedule_timer


# The head of a record in Removals; the subject follows.
cdef struct Removal:
    uint64_t seq
    uint32_t n


cdef class StreamCore(StreamBase):
    """A stream's state; see gnats.jetstream.stream.stream.Stream."""

    def __dealloc__(self):
        dedupe_free(&self.dedupe)
        free(self.itr)
        free(self.tr)
        filter_free(self.schedule_subjects)
        free(self.last_msg_id)
        free(self.removals.p)
        self.release_timers()

    cdef int reserve_timers(self) except -1:
        self.reserved = self.engine.reserve(TIMERS)
        if not self.reserved:
            raise MemoryError
        return 0

    cdef void release_timers(self) noexcept:
        if self.reserved and self.engine is not None:
            self.engine.reserve(-TIMERS)
        self.reserved = False

    # -- around changes of the store ---------------------------------------------------------------------------------

    cdef void enter(self) noexcept nogil:
        pthread_mutex_lock(&self.store.lock)

    cdef void leave(self, PollState *ps) noexcept nogil:
        cdef char[FEW_REMOVED] few
        cdef Removals gone
        cdef int64_t delta = <int64_t> self.store.bytes - self.accounted
        cdef int err = 0
        if delta:
            self.accounted += delta
            if self.account_usage is not None:
                usage_add(self.account_usage, self.cfg.memory, delta)
            if self.server_usage is not None:
                usage_add(self.server_usage, self.cfg.memory, delta)
        if ps == NULL:
            err = self.store.flush()
        gone = self.removals
        if gone.n <= FEW_REMOVED:
            if gone.n:
                memcpy(few, gone.p, gone.n)
            gone.p = few
            self.removals.n = 0
            self.removals.many = 0
        else:
            memset(&self.removals, 0, sizeof(Removals))
        pthread_mutex_unlock(&self.store.lock)
        if err:
            self.fail(err)
        if ps != NULL and not mark_dirty(js_poller_of(ps), self):
            self.flush(js_poller_of(ps))   # out of memory: the end of the batch would not do it
        if gone.n:
            self.notify_removed(gone.p, gone.n)
        if gone.many:
            self.notify_purged(NULL, 0)
        if gone.p != few:
            free(gone.p)

    cdef void notify_removed(self, const char *p, size_t n) noexcept nogil:
        cdef Concerned c
        cdef const Removal *r
        cdef size_t at = 0
        cdef uint32_t i
        while at < n:
            r = <const Removal *> (p + at)
            if r.seq == 0:
                self.notify_purged(<const char *> (r + 1), r.n)
            elif self.consumer_list.look_up(WITH_SUBJECT, <const char *> (r + 1), r.n, &c):
                for i in range(c.n):
                    consumer_removed(<ConsumerBase> concerned_at(&c, i), r.seq)
                concerned_free(&c)
            at += removal_size(r.n)

    cdef void notify_purged(self, const char *subject, size_t n) noexcept nogil:
        cdef Concerned c
        cdef STreeFilter only
        cdef uint8_t wild = subject_has_wildcard(subject, n)
        cdef Filter f
        cdef StoreMsg sm
        cdef uint64_t first, last, subject_first = 0
        cdef uint32_t i
        if not has_consumers(self.consumer_list):
            return
        only.at = subject
        only.n = n
        f.subjects = &only
        f.wild = &wild
        f.n = 1
        f.all = n == 0
        pthread_mutex_lock(&self.store.lock)
        first = self.store.first_seq
        last = self.store.last_seq
        if self.store.load_next(&f, first, &sm, NULL) == STORE_OK:
            subject_first = sm.seq
        pthread_mutex_unlock(&self.store.lock)
        if self.consumer_list.look_up(
                WITH_EVERYTHING if n == 0 else WITH_SUBJECTS if wild else WITH_SUBJECT, subject, <uint32_t> n, &c):
            for i in range(c.n):
                consumer_purged(<ConsumerBase> concerned_at(&c, i), first, last, subject, <uint32_t> n, subject_first)
            concerned_free(&c)

    cdef bint ack_msg(self, uint64_t seq, PollState *ps) noexcept nogil:
        cdef Concerned c
        cdef StoreMsg sm
        cdef bint gone
        cdef uint32_t i
        pthread_mutex_lock(&self.store.lock)
        gone = self.closed or not self.decides or self.cfg.retention == LIMITS_POLICY or (
            self.store.load(seq, &sm) != STORE_OK)
        pthread_mutex_unlock(&self.store.lock)
        if gone:
            return False
        if not self.consumer_list.look_up(WITH_SUBJECT, sm.subject, sm.subject_n, &c):
            return False   # out of memory: the message stays
        for i in range(c.n):
            if consumer_need_ack(<ConsumerBase> concerned_at(&c, i), seq, sm.subject, sm.subject_n):
                concerned_free(&c)
                return False
        concerned_free(&c)
        return self.log.drop(self, seq, ps)

    # -- the engine's ------------------------------------------------------------------------------------------------

    cdef int flush(self, JsPoller *jp) noexcept nogil:
        cdef int err
        pthread_mutex_lock(&self.store.lock)
        err = 0 if self.closed else self.store.flush()
        if err == 0:
            barrier_flushed(&self.barrier, self.store.last_seq)
        pthread_mutex_unlock(&self.store.lock)
        if err:
            self.fail(err)
        return err

    cdef int sync(self) noexcept nogil:
        cdef uint64_t flushed
        cdef int err
        pthread_mutex_lock(&self.store.lock)
        flushed = self.barrier.flushed
        pthread_mutex_unlock(&self.store.lock)
        err = self.store.sync()
        if err:
            self.fail(err)
            return err
        pthread_mutex_lock(&self.store.lock)
        barrier_synced(&self.barrier, flushed)
        pthread_mutex_unlock(&self.store.lock)
        return 0

    cdef void fail(self, int error) noexcept nogil:
        if not stream_failed(self):
            store32(<uint32_t *> &self.failed, <uint32_t> error)
            self.client.inbox.post_jetstream(<void *> self, STREAM_FAILED, -error, NULL, 0)

    # -- message ids -------------------------------------------------------------------------------------------------

    cdef void remember_msg_id(self, const char *id, size_t n, uint64_t seq, int64_t ts) noexcept nogil:
        if self.cfg.duplicates <= 0 or not dedupe_add(&self.dedupe, id, n, seq, ts):
            return
        if not self.dedupe_timer_set:
            self.dedupe_timer_set = True
            self.engine.arm(&self.dedupe_timer, time_after(monotonic_ns(), self.cfg.duplicates))

    cdef void set_last_msg_id(self, const char *id, size_t n) noexcept nogil:
        cdef char *grown
        if n > self.last_msg_id_cap:
            grown = <char *> realloc(self.last_msg_id, n)
            if grown == NULL:
                self.last_msg_id_n = 0   # no message can expect it then, rather than the one before
                return
            self.last_msg_id = grown
            self.last_msg_id_cap = n
        if n:
            memcpy(self.last_msg_id, id, n)
        self.last_msg_id_n = n

    # -- timers ------------------------------------------------------------------------------------------------------

    cdef void arm_expiry(self, int64_t when) noexcept nogil:
        if when == 0 or (self.expires_at and self.expires_at <= when):
            return
        self.expires_at = when
        # Not before SOON: a clock that was set back must not keep the control loop busy.
        self.engine.arm(&self.expiry_timer, time_after(monotonic_ns(), max(time_before(when, realtime_ns()), SOON)))


cdef void arm_schedules(StreamCore s) noexcept nogil:
    cdef int64_t when = next_schedule(s.store), now
    if when == INT64_MAX or (s.schedules_at and s.schedules_at <= when):
        return
    now = realtime_ns()
    s.schedules_at = when
    s.engine.arm(&s.schedule_timer, time_after(monotonic_ns(), max(time_before(when, now), SOON)))


cdef void note_damage(void *ctx) noexcept nogil:
    (<StreamCore> ctx).client.inbox.post_jetstream(ctx, STREAM_DAMAGED, 0, NULL, 0)


cdef void note_removed(
    void *ctx, uint64_t seq, const char *subject, uint32_t n, uint64_t msgs, uint64_t bytes
) noexcept nogil:
    if not has_consumers((<StreamCore> ctx).consumer_list):
        return
    if seq == 0:
        (<StreamCore> ctx).removals.many = 1
        return
    if (<StreamCore> ctx).consumer_list.count_off(seq, subject, n):
        add_removal(&(<StreamCore> ctx).removals, seq, subject, n)


cdef void note_purged(StreamCore s, const char *subject, size_t n) noexcept nogil:
    if has_consumers(s.consumer_list):
        add_removal(&s.removals, 0, subject, <uint32_t> n)


cdef void add_removal(Removals *gone, uint64_t seq, const char *subject, uint32_t n) noexcept nogil:
    cdef size_t cap
    cdef char *grown
    cdef Removal *r
    if gone.cap - gone.n < removal_size(n):
        cap = max(2 * gone.cap, gone.n + removal_size(n) + 256)
        grown = <char *> realloc(gone.p, cap)
        if grown == NULL:
            gone.many = 1   # consumers then look up what is left
            return
        gone.p = grown
        gone.cap = cap
    r = <Removal *> (gone.p + gone.n)
    r.seq = seq
    r.n = n
    if n:
        memcpy(r + 1, subject, n)
    gone.n += removal_size(n)


cdef inline size_t removal_size(size_t n) noexcept nogil:
    return (sizeof(Removal) + n + 7) & ~<size_t> 7


cdef void remove_unneeded(StreamCore s, const Filter *f, uint64_t seq, uint64_t end):
    cdef QsParticipant me
    cdef StoreMsg sm
    cdef bint more = True
    qs_register(&me)
    with nogil:
        pthread_mutex_lock(&s.store.lock)
        end = min(end, s.store.last_seq + 1)
        pthread_mutex_unlock(&s.store.lock)
        while more:
            qs_online(&me)
            pthread_mutex_lock(&s.store.lock)
            more = not s.closed and s.store.load_next(f, seq, &sm, NULL) == STORE_OK
            pthread_mutex_unlock(&s.store.lock)
            more = more and sm.seq < end
            if more:
                seq = sm.seq + 1
                s.ack_msg(sm.seq, NULL)
            qs_offline(&me)
    qs_unregister(&me)
