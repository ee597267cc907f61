"""JetStream's part of a server's pollers; see engine.pxd."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memmove, memset

from gnats.core.batch cimport end_batch_between_rounds
from gnats.core.internal cimport InternalSubscriber
from gnats.core.net.pollstate cimport PollerBase, PollState, poller_bit
from gnats.core.runtime.clock cimport clock_is_held, monotonic_ns, round_of_timers, timerfd_arm
from gnats.core.runtime.inbox cimport Source
from gnats.core.runtime.kinds cimport JETSTREAM
from gnats.core.runtime.quiesce cimport qs_advance, qs_offline, qs_online, qs_passed
from gnats.core.runtime.state cimport MAX_POLLERS, ServerState
from gnats.core.runtime.timers cimport (
    Timer,
    timer_clear,
    timer_expired,
    timer_set,
    timers_free,
    timers_next,
    timers_reserve,
)
from gnats.core.runtime.turn cimport TURN, turn_begin, turn_spend
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport (
    add64_seq,
    and64,
    bump64,
    exchange8,
    load64,
    load64_seq,
    load8,
    store8_release,
    unlikely,
)
from gnats.includes.linux cimport (
    CLOCK_MONOTONIC,
    TFD_CLOEXEC,
    TFD_NONBLOCK,
    close,
    errno,
    eventfd_read,
    eventfd_write,
    stopwatch_ns,
    timerfd_create,
)
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.jetstream.engine.barrier cimport JsPoller, PtrList, StreamBase
from gnats.jetstream.engine.consumerbase cimport ConsumerBase, consumer_run
from gnats.jetstream.engine.groupcommit cimport (
    commit_free,
    commit_init,
    commit_start,
    commit_stop,
    free_batches,
    give_to_sync,
    pass_synced,
    take_synced,
)
from gnats.jetstream.engine.longwork cimport Work, work_add, work_drop, work_run
from gnats.jetstream.engine.outbox cimport send_flushed, unsent

cdef enum:
    ROUNDS = 4               # of storing and delivering at the end of one batch: deliveries may store again
    RUNNING = 128            # units of a turn that a consumer takes
    LEFT = 65536             # bytes of answers that a turn may leave before those who cause more are slowed down
    TIMERS_AT_ONCE = 256     # timers called before connections have their turn


cdef class Engine:
    """JetStream's part of one server's data plane.

    `pollers`: all pollers of the server, the control loop's first. `cids`: a connection id (int) for each of them.
    The control loop watches fileno() and calls run_timers(). Raises OSError without a free descriptor, MemoryError.
    """

    def __cinit__(self, list pollers not None, ServerState state not None, cids not None):
        cdef PollerBase poller
        cdef InternalSubscriber client
        cdef JsPoller *jp
        self.tmfd = -1
        commit_init(&self.commit)
        pthread_mutex_init(&self.timer_lock, NULL)
        self.pollers = list(pollers)
        self.state = state
        self.clients = []
        self.graveyard = []
        self.tmfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.tmfd < 0:
            raise OSError(errno, "cannot create JetStream's timer")
        for poller, cid in zip(pollers, cids):
            client = InternalSubscriber(JETSTREAM, -1, cid, poller, state)
            jp = <JsPoller *> calloc(1, sizeof(JsPoller))
            if jp == NULL:
                raise MemoryError
            self.clients.append(client)
            jp.commit = &self.commit
            jp.ps = &poller.ps
            self.js_pollers[poller.ps.index] = jp
            poller.ps.js = <void *> client
            poller.ps.js_poller = jp
            poller.ps.js_hook = js_hook
        self.control = &(<PollerBase> pollers[0]).ps
        self.js_pollers[self.control.index].timers = <void *> self

    def __dealloc__(self):
        cdef uint32_t i
        self.stop_sync()
        if self.tmfd >= 0:
            close(self.tmfd)
        timers_free(&self.timers)
        for i in range(MAX_POLLERS):
            js_poller_free(self.js_pollers[i])
        commit_free(&self.commit)
        pthread_mutex_destroy(&self.timer_lock)

    def fileno(self) -> int:
        """The timerfd, readable when run_timers() has something to do."""
        return self.tmfd

    def run_timers(self) -> None:
        """Call the timers that are due, and let go of buried objects. The control loop."""
        cdef uint64_t value
        eventfd_read(self.tmfd, &value)
        with nogil:
            self.expire()
        self.reap()

    def clock_moved(self) -> None:
        """Have run_timers() called if a timer is due, after a test has moved a held clock. Any thread."""
        pthread_mutex_lock(&self.timer_lock)
        set_timerfd(self)
        pthread_mutex_unlock(&self.timer_lock)

    def start_sync(self) -> None:
        """Start the sync thread, for streams whose answers wait for it. Idempotent. Raises OSError."""
        cdef int err = commit_start(&self.commit)
        if err:
            raise OSError(err, "cannot start JetStream's sync thread")

    def stop_sync(self) -> None:
        """Sync what is queued, then end the sync thread. Idempotent."""
        with nogil:
            commit_stop(&self.commit)

    def run_batch(self) -> None:
        """Run an empty batch of the control loop's poller, which carries out the work that is left for its end."""
        with nogil:
            qs_online(&self.control.qs)
            self.control.now = monotonic_ns()
            end_batch_between_rounds(self.control)
            qs_offline(&self.control.qs)

    def bury(self, what not None) -> None:
        """Keep a closed stream, consumer or source alive until no thread can be using it. The control loop."""
        self.reap()
        self.graveyard.append((qs_advance(), what))

    def reap(self) -> None:
        """Let go of buried objects that no thread can be using. The control loop."""
        cdef list kept = []
        if not self.graveyard or (<InternalSubscriber> self.clients[0]).inbox.names_jetstream:
            return   # an event in the inbox may name one of them
        for number, what in self.graveyard:
            if not qs_passed(number) or refs_of(what):
                kept.append((number, what))
        self.graveyard = kept

    def stats(self) -> dict:
        """Counters since the start, and the present state of the timers.

        `syncs`: syncs of streams; `rounds`: rounds of timers; `timers`: timers armed; `deadline`: the first of them,
        monotonic ns, 0 for none; `overdue`: ns by which it has passed; `unwatched`: whether the timerfd would miss it;
        `buried`: closed streams, consumers and sources that are still kept.
        """
        cdef uint32_t timers
        cdef int64_t first, armed
        pthread_mutex_lock(&self.timer_lock)
        timers = self.timers.n
        first = timers_next(&self.timers)
        armed = self.armed
        pthread_mutex_unlock(&self.timer_lock)
        return {
            "syncs": load64(&self.commit.syncs),
            "rounds": load64(&self.rounds),
            "timers": timers,
            "overdue": max(monotonic_ns() - first, 0) if first else 0,
            "deadline": first,
            "unwatched": not clock_is_held() and first != 0 and (armed == 0 or armed > first),
            "buried": len(self.graveyard),
        }

    def close(self) -> None:
        """End it, after streams and consumers were closed and the pollers' threads have ended. Idempotent."""
        cdef PollerBase poller
        if self.closed:
            return
        self.closed = True
        self.stop_sync()
        for poller in self.pollers:
            poller.ps.js_hook = js_nothing
            work_drop(&(<JsPoller *> poller.ps.js_poller).work, &poller.ps)
        self.graveyard.clear()

    # -- timers ------------------------------------------------------------------------------------------------------

    cdef bint reserve(self, int n) noexcept nogil:
        cdef bint ok
        pthread_mutex_lock(&self.timer_lock)
        ok = timers_reserve(&self.timers, n) == 0
        pthread_mutex_unlock(&self.timer_lock)
        return ok

    cdef void arm(self, JsTimer *t, int64_t when) noexcept nogil:
        pthread_mutex_lock(&self.timer_lock)
        if when == 0:
            timer_clear(&self.timers, &t.timer)
        else:
            timer_set(&self.timers, &t.timer, when)
            # The timerfd is set to a later deadline when its present one has passed.
            if self.armed == 0 or timers_next(&self.timers) < self.armed:
                set_timerfd(self)
        pthread_mutex_unlock(&self.timer_lock)

    cdef void expire(self) noexcept nogil:
        cdef PollState *ps = self.control
        cdef Timer *t
        cdef uint32_t _
        qs_online(&ps.qs)
        ps.now = round_of_timers()
        bump64(&self.rounds, 1)
        for _ in range(TIMERS_AT_ONCE):
            pthread_mutex_lock(&self.timer_lock)
            t = timer_expired(&self.timers, ps.now)
            pthread_mutex_unlock(&self.timer_lock)
            if t == NULL:
                break
            (<JsTimer *> t).fn(t.owner, ps)
        pthread_mutex_lock(&self.timer_lock)
        set_timerfd(self)
        pthread_mutex_unlock(&self.timer_lock)
        end_batch_between_rounds(ps)
        qs_offline(&ps.qs)


cdef void js_poller_free(JsPoller *jp) noexcept nogil:
    if jp == NULL:
        return
    free_batches(jp.done)
    free_batches(jp.passing)
    free(jp.sending.p)
    free(jp.dirty.p)
    free(jp.run.p)
    free(jp.ready.p)
    free(jp.out.p)
    free(jp.synced.p)
    free(jp.held.p)
    free(jp)


cdef uint64_t refs_of(object what):
    if isinstance(what, StreamBase):
        return load64_seq(&(<StreamBase> what).refs)
    if isinstance(what, ConsumerBase):
        return load64_seq(&(<ConsumerBase> what).refs)
    return 0


cdef void set_timerfd(Engine e) noexcept nogil:
    """Set the timerfd to the first deadline; timer_lock is held. When that fails, the control loop's poller tries again
    at the end of its next batch, which is at once."""
    if timerfd_arm(e.tmfd, timers_next(&e.timers), &e.armed) < 0:
        store8_release(&e.control.js_signalled, 1)
        eventfd_write(e.control.evfd, 1)


cdef void set_again(Engine e) noexcept nogil:
    """Set the timerfd if that has failed."""
    pthread_mutex_lock(&e.timer_lock)
    if e.armed == 0 and timers_next(&e.timers):
        set_timerfd(e)
    pthread_mutex_unlock(&e.timer_lock)


# -- the pollers -----------------------------------------------------------------------------------------------------

cdef void js_nothing(PollState *ps) noexcept nogil:
    ps.js_dirty = ps.js_ready = False
    exchange8(&ps.js_signalled, 0)


cdef void js_hook(PollState *ps) noexcept nogil:
    cdef JsPoller *jp = <JsPoller *> ps.js_poller
    cdef int64_t turn = TURN
    cdef int _
    if exchange8(&ps.js_signalled, 0):
        take_synced(jp)
        if jp.timers != NULL:
            set_again(<Engine> jp.timers)
    if ps.began:
        # As long as the input has taken: answers must not pile up when many connections publish.
        turn = max(turn, stopwatch_ns() - ps.began)
    turn_begin(&ps.turn, NULL, turn)
    pass_synced(jp)
    run_list(jp, &jp.ready)
    turn_begin(&ps.turn, NULL, turn)
    for _ in range(ROUNDS):
        if not pass_flushed(jp):
            break
        run_list(jp, &jp.run)
        if ps.turn.over or (jp.dirty.n == 0 and jp.out.n == 0 and jp.run.n == 0):
            break
    jp.behind = unsent(jp) > LEFT
    ps.js_dirty = jp.dirty.n != 0 or jp.out.n != 0 or jp.sending.n != 0 or jp.run.n != 0 or jp.passing != NULL
    work_run(&jp.work, ps)
    ps.js_ready = jp.ready.n != 0 or jp.work.head != NULL


cdef bint pass_flushed(JsPoller *jp) noexcept nogil:
    """At the end of a batch: flush the dirty streams, give to the sync thread what waits for that, send the rest until
    the turn is over. Return whether all that was there is sent."""
    cdef size_t i, n = jp.dirty.n
    cdef bint unsynced = jp.synced.n or jp.held.n
    cdef bint sent
    for i in range(n):
        (<StreamBase> jp.dirty.p[i]).in_dirty[jp.ps.index] = 0
        (<StreamBase> jp.dirty.p[i]).flush(jp)
        unsynced |= load8(&(<StreamBase> jp.dirty.p[i]).barrier.unsynced)
    if unlikely(unsynced):
        give_to_sync(jp)
    sent = send_flushed(jp)
    for i in range(n):
        add64_seq(&(<StreamBase> jp.dirty.p[i]).refs, <uint64_t> -1)
    jp.dirty.n -= n   # sending may have added others
    if jp.dirty.n:
        memmove(jp.dirty.p, jp.dirty.p + n, jp.dirty.n * sizeof(void *))
    return sent


cdef void run_list(JsPoller *jp, PtrList *waiting) noexcept nogil:
    """Run the consumers of `run` or `ready` until the turn is over. The others stay, before those that have joined."""
    cdef bint now = waiting == &jp.run
    cdef PtrList taken = waiting[0]
    cdef size_t i
    memset(waiting, 0, sizeof(PtrList))
    for i in range(taken.n):
        if i and jp.ps.turn.over and put_back(waiting, &taken, i):
            return
        and64(&(<ConsumerBase> taken.p[i]).marked if now else &(<ConsumerBase> taken.p[i]).ready, ~poller_bit(jp.ps))
        turn_spend(&jp.ps.turn, RUNNING)
        consumer_run(<ConsumerBase> taken.p[i], jp.ps)
        add64_seq(&(<ConsumerBase> taken.p[i]).refs, <uint64_t> -1)
    if waiting.p == NULL:
        taken.n = 0
        waiting[0] = taken
    else:
        free(taken.p)


cdef bint put_back(PtrList *waiting, PtrList *taken, size_t first) noexcept nogil:
    """Put those of `taken` from `first` on before those in `waiting`. False without memory."""
    cdef size_t left = taken.n - first
    while taken.cap < left + waiting.n:
        if not array_grow(&taken.p, &taken.cap, 16, sizeof(void *)):
            return False
    memmove(taken.p, taken.p + first, left * sizeof(void *))
    if waiting.n:
        memcpy(taken.p + left, waiting.p, waiting.n * sizeof(void *))
    taken.n = left + waiting.n
    free(waiting.p)
    waiting[0] = taken[0]
    return True


cdef bint queue_work(JsPoller *jp, Work *w, Source *causer) noexcept nogil:
    if not work_add(&jp.work, jp.ps, w, causer):
        return False
    jp.ps.js_ready = True
    return True
