"""JetStream's part of the pollers' batches; see engine.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from gnats.core.account cimport Account
from gnats.core.batch cimport end_batch
from gnats.core.client cimport Client
from gnats.core.clock cimport clock_is_held, monotonic_ns, realtime_ns, round_of_timers, timerfd_arm
from gnats.core.inbox cimport Source
from gnats.core.kinds cimport JETSTREAM
from gnats.core.pollstate cimport PollerBase, PollState
from gnats.core.publishing cimport send_internal_msg
from gnats.core.quiesce cimport qs_advance, qs_offline, qs_online, qs_passed
from gnats.core.state cimport ServerState
from gnats.core.timers cimport Timer, timer_clear, timer_expired, timer_set, timers_free, timers_next, timers_reserve
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport (
    add64_seq,
    and64,
    bump64,
    exchange8,
    load64,
    load64_seq,
    load8,
    or64,
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
    timerfd_create,
)
from gnats.includes.pthread cimport (
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_create,
    pthread_join,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_self,
    pthread_setname_np,
)
from gnats.jetstream.observer cimport Observer
from gnats.jetstream.turns cimport Work, work_add, work_drop, work_run

cdef enum:
    ROUNDS = 4               # of what deliveries cause in turn, within one batch
    OUTBOX_KEPT = 256 * 1024  # bytes of an outbox that stay allocated
    TIMERS_AT_ONCE = 256     # before connections have their turn again


# A message in an Outbox; subject, header and payload follow it.
cdef struct Outgoing:
    void *stream             # borrowed StreamBase
    uint32_t subject_n
    uint32_t hdr_n
    uint32_t msg_n
    uint32_t anyway          # also when its stream has failed


cdef class StreamBase:
    """A stream, as its engine sees it; see gnats.jetstream.stream.Stream."""

    cdef int flush(self) noexcept nogil:
        return 0

    cdef int sync(self) noexcept nogil:
        return 0


cdef class Engine:
    """JetStream's part of one server's data plane.

    `pollers` are all pollers of the server, the control loop's first; `cids` gives a connection id for each.
    The control loop watches fileno() and calls run_timers(). Raises OSError when no descriptor can be had, MemoryError.
    """

    def __cinit__(self, list pollers not None, ServerState state not None, cids not None):
        cdef PollerBase poller
        cdef Client client
        cdef Local *local
        self.tmfd = -1
        pthread_mutex_init(&self.lock, NULL)
        pthread_mutex_init(&self.timer_lock, NULL)
        pthread_cond_init(&self.wake, NULL)
        self.pollers = list(pollers)
        self.state = state
        self.clients = []
        self.graveyard = []
        self.tmfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.tmfd < 0:
            raise OSError(errno, "cannot create JetStream's timer")
        for poller, cid in zip(pollers, cids):
            client = Client(JETSTREAM, -1, cid, poller, state)
            local = <Local *> calloc(1, sizeof(Local))
            if local == NULL:
                raise MemoryError
            self.clients.append(client)
            local.engine = <void *> self
            local.ps = &poller.ps
            self.locals[poller.ps.index] = local
            poller.ps.js = <void *> client
            poller.ps.js_local = local
            poller.ps.js_hook = js_hook
        self.control = &(<PollerBase> pollers[0]).ps

    def __dealloc__(self):
        cdef uint32_t i
        cdef Local *local
        self.stop_sync()
        if self.tmfd >= 0:
            close(self.tmfd)
        timers_free(&self.timers)
        for i in range(64):
            local = self.locals[i]
            if local != NULL:
                free_batches(local.done)
                free(local.dirty.p)
                free(local.run.p)
                free(local.ready.p)
                free(local.out.p)
                free(local.synced.p)
                free(local.held.p)
                free(local)
        free_batches(self.queue)
        pthread_cond_destroy(&self.wake)
        pthread_mutex_destroy(&self.timer_lock)
        pthread_mutex_destroy(&self.lock)

    def fileno(self) -> int:
        """A timerfd: readable when run_timers() has something to do."""
        return self.tmfd

    def run_timers(self) -> None:
        """Call what is due. The control loop."""
        cdef uint64_t value
        eventfd_read(self.tmfd, &value)
        with nogil:
            self.expire()
        self.reap()

    def clock_moved(self) -> None:
        """A held clock has moved: have run_timers() called if something is due. Any thread."""
        pthread_mutex_lock(&self.timer_lock)
        set_timerfd(self)
        pthread_mutex_unlock(&self.timer_lock)

    def start_sync(self) -> None:
        """Start the sync thread; streams with sync_always need it. Idempotent. Raises OSError."""
        cdef int err
        if self.syncing:
            return
        err = pthread_create(&self.thread, NULL, sync_loop, <void *> self)
        if err:
            raise OSError(err, "cannot start JetStream's sync thread")
        self.syncing = True

    def stop_sync(self) -> None:
        """Sync what is waiting and end the thread. Idempotent."""
        if not self.syncing:
            return
        with nogil:
            pthread_mutex_lock(&self.lock)
            self.stopping = True
            pthread_cond_signal(&self.wake)
            pthread_mutex_unlock(&self.lock)
            pthread_join(self.thread, NULL)
        self.syncing = False
        self.stopping = False

    def sync_soon(self, StreamBase stream not None) -> None:
        """Have the sync thread sync what a stream has flushed: for `sync_interval`. Nobody waits for it.

        Raises OSError when the thread cannot be started, MemoryError.
        """
        cdef SyncBatch *batch
        self.start_sync()
        batch = <SyncBatch *> calloc(1, sizeof(SyncBatch))
        if batch == NULL:
            raise MemoryError
        batch.local = self.locals[self.control.index]
        batch.nstreams = 1
        batch.streams[0] = <void *> stream
        add64_seq(&stream.refs, 1)
        pthread_mutex_lock(&self.lock)
        append_batch(&self.queue, &self.queue_last, batch)
        pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)

    def run_batch(self) -> None:
        """An empty batch of the control loop's poller: carry out what has been left for it (and for tests)."""
        with nogil:
            qs_online(&self.control.qs)
            self.control.now = monotonic_ns()
            end_batch(self.control)
            if self.control.js_dirty != NULL or self.control.js_ready != NULL:
                eventfd_write(self.control.evfd, 1)
            qs_offline(&self.control.qs)

    def bury(self, what not None) -> None:
        """Keep a stream, a consumer or a source that was closed until no thread can be using it."""
        self.reap()
        self.graveyard.append((qs_advance(), what))

    def reap(self) -> None:
        """Let go of what was buried and is no longer used."""
        cdef list kept = []
        if not self.graveyard or (<Client> self.clients[0]).inbox.names_jetstream:
            return   # an event that is waiting may name one of them
        for number, what in self.graveyard:
            if not qs_passed(number) or refs_of(what):
                kept.append((number, what))
        self.graveyard = kept

    def stats(self) -> dict:
        """Counters, and how it is at the moment.

        `syncs`: fdatasyncs so far; `rounds` of timers so far; `timers` armed; `deadline`: the first one, monotonic ns;
        `overdue`: nanoseconds by which it has passed; `unwatched`: whether it would pass unnoticed; `buried`: closed
        streams and consumers still kept.
        """
        cdef uint32_t timers
        cdef int64_t first, armed
        pthread_mutex_lock(&self.timer_lock)
        timers = self.timers.n
        first = timers_next(&self.timers)
        armed = self.armed
        pthread_mutex_unlock(&self.timer_lock)
        return {
            "syncs": load64(&self.syncs),
            "rounds": load64(&self.rounds),
            "timers": timers,
            "overdue": max(monotonic_ns() - first, 0) if first else 0,
            "deadline": first,
            "unwatched": not clock_is_held() and first != 0 and (armed == 0 or armed > first),
            "buried": len(self.graveyard),
        }

    def close(self) -> None:
        """Streams and consumers are closed, and the pollers' threads have ended. Idempotent."""
        cdef PollerBase poller
        if self.closed:
            return
        self.closed = True
        self.stop_sync()
        for poller in self.pollers:
            poller.ps.js_hook = js_nothing
            work_drop(&(<Local *> poller.ps.js_local).work, &poller.ps)
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
            # A deadline that is later than the timerfd's is set when that one has passed.
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
        end_batch(ps)
        if ps.js_dirty != NULL or ps.js_ready != NULL:
            eventfd_write(ps.evfd, 1)
        qs_offline(&ps.qs)

    # -- group commit ------------------------------------------------------------------------------------------------

    cdef void give_to_sync(self, Local *local) noexcept nogil:
        """What waits for a sync waits for one of the streams that were flushed in this batch."""
        cdef SyncBatch *batch = <SyncBatch *> malloc(sizeof(SyncBatch) + local.dirty.n * sizeof(void *))
        cdef uint32_t i
        for i in range(local.held.n):
            and64(&(<Observer> local.held.p[i]).held, ~(<uint64_t> 1 << local.ps.index))
        if batch == NULL:
            local.synced.n = 0   # no reply is better than one that may not be true
            for i in range(local.held.n):
                add64_seq(&(<Observer> local.held.p[i]).refs, <uint64_t> -1)
            local.held.n = 0
            return
        batch.next = NULL
        batch.local = local
        batch.out = local.synced
        memset(&local.synced, 0, sizeof(Outbox))
        batch.held = local.held
        memset(&local.held, 0, sizeof(PtrList))
        batch.nstreams = 0
        batch.stored = True
        for i in range(local.dirty.n):
            if (<StreamBase> local.dirty.p[i]).sync_always:
                exchange8(&(<StreamBase> local.dirty.p[i]).unsynced, 0)
                batch.streams[batch.nstreams] = local.dirty.p[i]
                batch.nstreams += 1
                add64_seq(&(<StreamBase> local.dirty.p[i]).refs, 1)
                if stream_failed(<StreamBase> local.dirty.p[i]):
                    batch.stored = False
        pthread_mutex_lock(&self.lock)
        append_batch(&self.queue, &self.queue_last, batch)
        pthread_cond_signal(&self.wake)
        pthread_mutex_unlock(&self.lock)


cdef uint64_t refs_of(object what):
    if isinstance(what, StreamBase):
        return load64_seq(&(<StreamBase> what).refs)
    if isinstance(what, Observer):
        return load64_seq(&(<Observer> what).refs)
    return 0


cdef void set_timerfd(Engine e) noexcept nogil:
    """Arm it for the first deadline; timer_lock is held."""
    timerfd_arm(e.tmfd, timers_next(&e.timers), &e.armed)


cdef void append_batch(SyncBatch **first, SyncBatch **last, SyncBatch *batch) noexcept nogil:
    batch.next = NULL
    if first[0] == NULL:
        first[0] = batch
    else:
        last[0].next = batch
    last[0] = batch


cdef void free_batches(SyncBatch *batch) noexcept nogil:
    cdef SyncBatch *following
    while batch != NULL:
        following = batch.next
        free(batch.out.p)
        free(batch.held.p)
        free(batch)
        batch = following


cdef void *sync_loop(void *arg) noexcept nogil:
    """The sync thread: takes all batches there are, syncs each of their streams once, gives the batches back."""
    cdef SyncBatch *batch
    cdef SyncBatch *following
    cdef SyncBatch *taken
    cdef uint32_t i
    cdef uint64_t turn = 0
    cdef bint stop
    pthread_setname_np(pthread_self(), "gnats-sync")
    while True:
        pthread_mutex_lock(&(<Engine> arg).lock)
        while (<Engine> arg).queue == NULL and not (<Engine> arg).stopping:
            pthread_cond_wait(&(<Engine> arg).wake, &(<Engine> arg).lock)
        taken = (<Engine> arg).queue
        (<Engine> arg).queue = NULL
        stop = (<Engine> arg).stopping
        pthread_mutex_unlock(&(<Engine> arg).lock)
        turn += 1
        batch = taken
        while batch != NULL:
            for i in range(batch.nstreams):
                if (<StreamBase> batch.streams[i]).sync_turn != turn:
                    (<StreamBase> batch.streams[i]).sync_turn = turn
                    if (<StreamBase> batch.streams[i]).sync() != 0:
                        (<StreamBase> batch.streams[i]).sync_failed = True
                    bump64(&(<Engine> arg).syncs, 1)
                if (<StreamBase> batch.streams[i]).sync_failed:
                    batch.stored = False
            batch = batch.next
        batch = taken
        while batch != NULL:
            following = batch.next
            pthread_mutex_lock(&(<Engine> arg).lock)
            append_batch(&batch.local.done, &batch.local.done_last, batch)
            pthread_mutex_unlock(&(<Engine> arg).lock)
            store8_release(&batch.local.ps.js_signalled, 1)
            eventfd_write(batch.local.ps.evfd, 1)
            batch = following
        if stop and taken == NULL:
            return NULL


# -- the pollers -----------------------------------------------------------------------------------------------------

cdef void js_nothing(PollState *ps) noexcept nogil:
    ps.js_dirty = ps.js_ready = NULL
    exchange8(&ps.js_signalled, 0)


cdef void js_hook(PollState *ps) noexcept nogil:
    cdef Local *local = <Local *> ps.js_local
    cdef int _
    if exchange8(&ps.js_signalled, 0):
        send_synced(local)
    run_list(local, &local.ready, False)
    for _ in range(ROUNDS):
        finish_streams(local)
        run_list(local, &local.run, True)
        if local.dirty.n == 0 and local.out.n == 0 and local.run.n == 0:
            break
    ps.js_dirty = <void *> local if local.dirty.n or local.out.n or local.run.n else NULL
    work_run(&local.work, ps)
    ps.js_ready = <void *> local if local.ready.n or local.work.head != NULL else NULL


cdef void finish_streams(Local *local) noexcept nogil:
    """Flush what has been stored, then send what waited for it."""
    cdef uint32_t i, n = local.dirty.n
    cdef bint unsynced = local.synced.n or local.held.n
    for i in range(n):
        (<StreamBase> local.dirty.p[i]).in_dirty[local.ps.index] = 0
        (<StreamBase> local.dirty.p[i]).flush()
        unsynced |= load8(&(<StreamBase> local.dirty.p[i]).unsynced)
    if unlikely(unsynced):
        (<Engine> local.engine).give_to_sync(local)
    for i in range(n):
        add64_seq(&(<StreamBase> local.dirty.p[i]).refs, <uint64_t> -1)
    local.dirty.n = 0
    if local.out.n:
        send_out(local.ps, &local.out, False)


cdef void send_out(PollState *ps, Outbox *out, bint stored) noexcept nogil:
    """Publish what is in it, and empty it; what that causes is put into it anew. Unless what it is about is known to be
    stored, a stream that has failed sends nothing."""
    cdef Outbox taken = out[0]
    cdef Outgoing *o
    cdef char *p
    cdef size_t at = 0
    memset(out, 0, sizeof(Outbox))
    while at < taken.n:
        o = <Outgoing *> (taken.p + at)
        p = <char *> (o + 1)
        at += outgoing_size(o.subject_n + <size_t> o.hdr_n + o.msg_n)
        if stored or o.anyway or not stream_failed(<StreamBase> o.stream):
            publish_now(
                ps, <StreamBase> o.stream, p, o.subject_n, NULL, 0, NULL, 0, p + o.subject_n, o.hdr_n,
                p + o.subject_n + o.hdr_n, o.msg_n)
    if out.p == NULL and taken.cap <= OUTBOX_KEPT:
        taken.n = 0
        out[0] = taken
    else:
        free(taken.p)


cdef void send_synced(Local *local) noexcept nogil:
    cdef SyncBatch *batch
    cdef SyncBatch *following
    cdef uint32_t i
    pthread_mutex_lock(&(<Engine> local.engine).lock)
    batch = local.done
    local.done = local.done_last = NULL
    pthread_mutex_unlock(&(<Engine> local.engine).lock)
    while batch != NULL:
        following = batch.next
        send_out(local.ps, &batch.out, batch.stored)
        for i in range(batch.held.n):
            run_later(local, <Observer> batch.held.p[i])
            add64_seq(&(<Observer> batch.held.p[i]).refs, <uint64_t> -1)
        for i in range(batch.nstreams):
            add64_seq(&(<StreamBase> batch.streams[i]).refs, <uint64_t> -1)
        free(batch.out.p)
        free(batch.held.p)
        free(batch)
        batch = following


cdef void run_list(Local *local, PtrList *waiting, bint marked) noexcept nogil:
    cdef PtrList taken = waiting[0]
    cdef uint32_t i
    memset(waiting, 0, sizeof(PtrList))
    for i in range(taken.n):
        if marked:
            and64(&(<Observer> taken.p[i]).marked, ~(<uint64_t> 1 << local.ps.index))
        (<Observer> taken.p[i]).run(local.ps)
        add64_seq(&(<Observer> taken.p[i]).refs, <uint64_t> -1)
    if waiting.p == NULL:
        taken.n = 0
        waiting[0] = taken
    else:
        free(taken.p)


cdef inline size_t outgoing_size(size_t n) noexcept nogil:
    return (sizeof(Outgoing) + n + 7) & ~<size_t> 7


cdef bint append_ptr(PtrList *list, void *p) noexcept nogil:
    if list.n == list.cap and not array_grow(&list.p, &list.cap, 16, sizeof(void *)):
        return False
    list.p[list.n] = p
    list.n += 1
    return True


cdef int64_t batch_time(Local *local) noexcept nogil:
    if local.wall_at != local.ps.now:
        local.wall_at = local.ps.now
        local.wall = realtime_ns()
    return local.wall


cdef bint mark_dirty(Local *local, StreamBase stream) noexcept nogil:
    if stream.in_dirty[local.ps.index]:
        return True
    if not append_ptr(&local.dirty, <void *> stream):
        return False
    stream.in_dirty[local.ps.index] = 1
    add64_seq(&stream.refs, 1)
    local.ps.js_dirty = <void *> local
    return True


cdef bint publish_later(
    Local *local, StreamBase stream, const char *subject, size_t sn, const char *hdr, size_t hn, const char *msg,
    size_t n, bint anyway
) noexcept nogil:
    cdef Outbox *out = &local.synced if stream.sync_always else &local.out
    cdef size_t need = outgoing_size(sn + hn + n)
    cdef size_t cap
    cdef Outgoing *o
    cdef char *p
    # First of all: a reply that is in the outbox leaves when the streams of the batch have been flushed.
    if not mark_dirty(local, stream):
        return False
    if out.cap - out.n < need:
        cap = max(out.cap * 2, max(out.n + need, <size_t> 16384))
        p = <char *> realloc(out.p, cap)
        if p == NULL:
            return False
        out.p = p
        out.cap = cap
    o = <Outgoing *> (out.p + out.n)
    out.n += need
    o.stream = <void *> stream
    o.subject_n = <uint32_t> sn
    o.hdr_n = <uint32_t> hn
    o.msg_n = <uint32_t> n
    o.anyway = anyway
    p = <char *> (o + 1)
    memcpy(p, subject, sn)
    if hn:
        memcpy(p + sn, hdr, hn)
    if n:
        memcpy(p + sn + hn, msg, n)
    return True


cdef bint publish_now(
    PollState *ps, StreamBase stream, const char *subject, size_t sn, const char *shown, size_t shown_n,
    const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg, size_t n
) noexcept nogil:
    return send_internal_msg(
        <Client> ps.js, <Account> stream.account, subject, sn, shown, shown_n, reply, rn, hdr, hn, msg, n)


cdef bint run_later(Local *local, Observer o) noexcept nogil:
    cdef uint64_t bit = <uint64_t> 1 << local.ps.index
    if load64(&o.marked) & bit:
        return True
    if not append_ptr(&local.run, <void *> o):
        return False
    or64(&o.marked, bit)
    add64_seq(&o.refs, 1)
    local.ps.js_dirty = <void *> local
    return True


cdef bint run_synced(Local *local, StreamBase stream, Observer o) noexcept nogil:
    cdef uint64_t bit = <uint64_t> 1 << local.ps.index
    if load64(&o.held) & bit == 0:
        if not append_ptr(&local.held, <void *> o):
            return False
        or64(&o.held, bit)
        add64_seq(&o.refs, 1)
    return mark_dirty(local, stream)


cdef bint take_turns(Local *local, Work *w, Source *causer) noexcept nogil:
    if not work_add(&local.work, local.ps, w, causer):
        return False
    local.ps.js_ready = <void *> local
    return True


cdef bint run_again(Local *local, Observer o) noexcept nogil:
    if not append_ptr(&local.ready, <void *> o):
        return False
    add64_seq(&o.refs, 1)
    local.ps.js_ready = <void *> local
    return True
