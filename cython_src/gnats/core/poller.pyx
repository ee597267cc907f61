"""A poller; see poller.pxd."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc

from os import sched_getaffinity

from gnats.core.accounts.departures cimport remove_departed
from gnats.core.auth.permission_cache cimport verdicts_free
from gnats.core.batch cimport end_batch
from gnats.core.net.connection cimport Connection
from gnats.core.net.outbound cimport CHUNK_CLASSES, pool_free
from gnats.core.net.pollstate cimport PollerBase, PollState, pollstate_busy
from gnats.core.routing.remote cimport handoffs_free
from gnats.core.runtime.clock cimport (
    clock_is_held,
    clock_join,
    clock_leave,
    clock_settled,
    held_due,
    monotonic_ns,
    round_of_timers,
)
from gnats.core.runtime.inbox cimport Inbox
from gnats.core.runtime.quiesce cimport qs_offline, qs_online, qs_reclaim, qs_register, qs_unregister
from gnats.core.runtime.state cimport MAX_POLLERS, ServerState
from gnats.core.runtime.timers cimport Timer, timer_expired, timers_free, timers_next
from gnats.core.runtime.turn cimport TURN
from gnats.core.subjects.match_cache cimport results_free
from gnats.includes.atomics cimport (
    bump64,
    load8,
    load8_acquire,
    load32,
    load64,
    loadi64,
    store8,
    store8_release,
    storei64,
    unlikely,
)
from gnats.includes.linux cimport (
    CLOCK_MONOTONIC,
    EFD_CLOEXEC,
    EFD_NONBLOCK,
    EPOLL_CLOEXEC,
    EPOLL_CTL_ADD,
    EINTR,
    EPOLLIN,
    TFD_CLOEXEC,
    TFD_NONBLOCK,
    close,
    epoll_create1,
    epoll_ctl,
    epoll_event,
    epoll_wait,
    errno,
    eventfd,
    eventfd_read,
    eventfd_write,
    sched_yield,
    stopwatch_ns,
    timerfd_create,
)
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_self,
    pthread_setname_np,
)

cdef enum:
    MAX_EVENTS = 256
    READ_BUFFER = 256 * 1024   # bytes of one read: enough to make a system call cheap, and they fit into the L2 cache
    STREAK = 16                # after so many short waits in a row, expect the next to be short
    SHORT = 120000             # ns of a short wait; a virtual machine needs a third of it to wake a core
    LINGER = 60000             # ns to look for events without sleeping
    REMOVING = 1000000         # ns of a round for removing subscriptions of closed connections
    LOOP_TURN = 1000000        # ns until the control loop has its turn
    THREAD_NAME = 16           # bytes that the kernel keeps, the final NUL included


cdef class Poller(PollerBase):
    """One epoll set with its connections. `index` is unique in the server and below MAX_POLLERS.

    `solo` promises that no other thread moves messages on this server, which saves atomic operations. Raises ValueError
    for an index too large, OSError when a descriptor cannot be made, MemoryError.
    """

    def __cinit__(self, uint32_t index, Inbox inbox not None, ServerState state not None, *, bint solo=False):
        if index >= MAX_POLLERS:
            raise ValueError(f"poller index {index} is not below {MAX_POLLERS}")
        self.ps.epfd = self.ps.evfd = self.ps.tmfd = -1
        pthread_mutex_init(&self.ps.lock, NULL)
        pthread_mutex_init(&self.ps.receiving, NULL)
        qs_register(&self.ps.qs)
        self.inbox = inbox
        self.state = state
        self.ps.inbox = <void *> inbox
        self.ps.state = <void *> state
        self.ps.index = index
        self.ps.solo = solo
        # With one core, looking for events keeps their sender from running. Under a held clock waits have no length.
        self.lingers = len(sched_getaffinity(0)) > 1 and not clock_is_held()
        self.ps.rng = <uint64_t> stopwatch_ns() * 2 + 1
        self.ps.now = monotonic_ns()
        self.ps.cache.turn = &self.ps.turn
        self.ps.rbuf_len = READ_BUFFER
        self.ps.rbuf = <char *> malloc(READ_BUFFER)
        if self.ps.rbuf == NULL:
            raise MemoryError
        self.ps.epfd = epoll_create1(EPOLL_CLOEXEC)
        self.ps.evfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
        self.ps.tmfd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self.ps.epfd < 0 or self.ps.evfd < 0 or self.ps.tmfd < 0:
            raise OSError(errno, "cannot create a poller's descriptors")
        if watch(&self.ps, self.ps.evfd, &self.ps.evfd) < 0 or watch(&self.ps, self.ps.tmfd, &self.ps.tmfd) < 0:
            raise OSError(errno, "cannot watch a poller's descriptors")
        state.pollers[index] = &self.ps
        clock_join()
        self.joined = 1

    def __dealloc__(self):
        if self.ps.inbox == NULL:
            return   # __cinit__ failed before it set anything up
        self.close()
        qs_unregister(&self.ps.qs)
        pthread_mutex_destroy(&self.ps.receiving)
        pthread_mutex_destroy(&self.ps.lock)

    def fileno(self) -> int:
        """The epoll descriptor: readable when run_once has something to do."""
        return self.ps.epfd

    def run_once(self, int timeout_ms=0) -> int:
        """Read, parse, route and flush all that is ready, without the GIL. Return the number of events, or -errno.

        Waits for `timeout_ms` for the first one; -1: without limit.
        """
        cdef int64_t begin = stopwatch_ns()
        cdef int n, more
        with nogil:
            n = more = self.once(timeout_ms)
            if n > 0:
                self.waited(begin - self.left)
            while more >= 0:
                if self.ps.dirty != NULL:
                    more = self.once(0)    # do not let queues that wait for more input wait for the loop
                elif (self.ps.solo and n > 0 and self.woke - begin < LOOP_TURN and not pollstate_busy(&self.ps)
                        and load64(&(<Inbox> self.ps.inbox).queued) == 0):
                    more = self.linger()
                    if more == 0:
                        break
                else:
                    break
                n += max(more, 0)
            if more < 0:
                n = more
            self.left = stopwatch_ns()
            if pollstate_busy(&self.ps):
                eventfd_write(self.ps.evfd, 1)
        return n

    def run(self) -> None:
        """Call once() until stop(), in a thread of its own. Raises OSError when epoll fails."""
        cdef int64_t begin
        cdef int n = 0
        cdef char[THREAD_NAME] name
        snprintf(name, sizeof(name), "gnats-io-%u", <uint32_t> (self.ps.index - 1))
        pthread_setname_np(pthread_self(), name)
        with nogil:
            while n >= 0 and not load8_acquire(&self.stopping):
                n = self.linger()
                if n == 0:
                    begin = stopwatch_ns()
                    n = self.once(-1)
                    self.waited(self.woke - begin)
        if n < 0:
            raise OSError(-n, "epoll_wait failed")

    def stop(self) -> None:
        """Make run() return. Any thread."""
        store8_release(&self.stopping, 1)
        eventfd_write(self.ps.evfd, 1)

    def hurry(self) -> None:
        """Remove all subscriptions of a closed connection in one batch from now on: no client is served any more.

        Any thread.
        """
        store8(&self.ps.hurry, 1)

    def wake(self) -> None:
        """Have run() or run_once() do a round, which stats()["wakeups"] counts. Any thread, before close()."""
        eventfd_write(self.ps.evfd, 1)

    def close(self) -> None:
        """Release descriptors and memory. run() must have returned, and all connections must be closed."""
        cdef int fd
        if self.closed:
            return
        self.closed = 1
        if self.joined:
            clock_leave()
        for fd in (self.ps.epfd, self.ps.evfd, self.ps.tmfd):
            if fd >= 0:
                close(fd)
        self.ps.epfd = self.ps.evfd = self.ps.tmfd = -1
        results_free(&self.ps.cache)
        verdicts_free(&self.ps.verdicts)
        handoffs_free(&self.ps)
        pool_free(&self.ps.pool)
        timers_free(&self.ps.timers)
        free(self.ps.rbuf)
        free(self.ps.scratch.p)
        free(self.ps.scratch_like.p)
        free(self.ps.mapped)
        free(self.ps.s2)
        free(self.ps.touched)
        self.ps.rbuf = self.ps.scratch.p = self.ps.scratch_like.p = self.ps.mapped = NULL
        self.ps.touched = self.ps.s2 = NULL

    def stats(self) -> dict:
        """Return counters since the start and the number of clients, each read by itself."""
        return {
            "in_msgs": load64(&self.ps.in_msgs),
            "in_bytes": load64(&self.ps.in_bytes),
            "out_msgs": load64(&self.ps.out_msgs),
            "out_bytes": load64(&self.ps.out_bytes),
            "clients": load32(&self.ps.nclients),
            "cache_hits": load64(&self.ps.cache.hits),
            "cache_misses": load64(&self.ps.cache.misses),
            "cache_entries": load32(&self.ps.cache.n),
            "wakeups": load64(&self.ps.wakeups),
            "reads": load64(&self.ps.reads),
            "lingered": load64(&self.lingered),
        }

    def state_now(self) -> dict:
        """Return the poller's present state. A hint only: it may be running.

        `timers`: armed timers; `deadline`: the first one's, monotonic ns, 0 for none; `overdue`: ns since then;
        `unwatched`: whether the deadline would pass unnoticed; `free_chunks`: by size class; `settled`: under a held
        clock, the time of the last round after which nothing due was left.
        """
        cdef int64_t first = loadi64(&self.ps.timers.first), armed = loadi64(&self.ps.armed)
        return {
            "timers": load32(&self.ps.timers.n),
            "overdue": max(monotonic_ns() - first, 0) if first else 0,
            "unwatched": not clock_is_held() and first != 0 and (armed == 0 or armed > first),
            "free_chunks": [load32(&self.ps.pool.n[i]) for i in range(CHUNK_CLASSES)],
            "scratch_bytes": load64(<uint64_t *> &self.ps.scratch.n) + load64(<uint64_t *> &self.ps.scratch_like.n),
            "deadline": first,
            "settled": loadi64(&self.settled),
        }

    cdef int linger(self) noexcept nogil:
        """Look for events for LINGER ns without sleeping, if they are expected so soon. Return their number.

        A client that sends one message at a time and waits for the answer finds the server awake: putting a core to
        sleep and waking it up takes longer than the message, and more CPU time.
        """
        cdef int64_t begin
        cdef int n
        if self.short_waits < STREAK or not self.lingers:
            return 0
        begin = stopwatch_ns()
        while True:
            n = self.once(0)
            if n != 0:
                bump64(&self.lingered, 1)
                return n
            if stopwatch_ns() - begin >= LINGER:
                self.short_waits = 0
                return 0
            sched_yield()

    cdef void waited(self, int64_t ns) noexcept nogil:
        if ns >= SHORT:
            self.short_waits = 0
        elif self.short_waits < STREAK:
            self.short_waits += 1

    cdef int once(self, int timeout_ms) noexcept nogil:
        cdef epoll_event[MAX_EVENTS] events
        cdef PollState *ps = &self.ps
        cdef uint64_t value
        cdef int i, n
        cdef bint signalled = False, timed = False
        # Do not sleep while connections wait to be flushed: they wait only as long as there is more input.
        cdef bint busy = ps.dirty != NULL or pollstate_busy(ps)
        cdef void *last = ps.waiting_last if ps.waiting != NULL else NULL
        n = epoll_wait(ps.epfd, events, MAX_EVENTS, 0 if busy else timeout_ms)
        if n < 0 and errno != EINTR:
            return -errno
        n = max(n, 0)
        if n == 0 and not busy:
            return 0
        qs_online(&ps.qs)
        ps.began = stopwatch_ns()
        self.woke = ps.now = monotonic_ns()
        bump64(&ps.wakeups, 1)
        for i in range(n):
            if events[i].data.ptr == &ps.evfd:
                signalled = True
            elif events[i].data.ptr == &ps.tmfd:
                timed = True
            else:
                (<Connection> events[i].data.ptr).on_events(events[i].events)
        if signalled:
            eventfd_read(ps.evfd, &value)
            self.drain_signals()
        if timed:
            eventfd_read(ps.tmfd, &value)
            storei64(&ps.armed, 0)
            if unlikely(clock_is_held()):
                ps.now = round_of_timers()
            self.expire_timers()
        if unlikely(last != NULL):
            self.give_turns(last)
        end_batch(ps)
        ps.began = 0
        if unlikely(ps.leaving != NULL):
            self.remove_closed_subs()
        if unlikely(clock_is_held()):
            self.settle()
        qs_offline(&ps.qs)
        qs_reclaim()
        return n

    cdef void give_turns(self, void *last) noexcept nogil:
        # As much time for them as the others have just had.
        cdef PollState *ps = &self.ps
        cdef int64_t now = stopwatch_ns()
        cdef int64_t end = now + max(now - ps.began, TURN)
        cdef void *at = NULL
        while at != last and now < end:
            at = ps.waiting
            take_turn(<Connection> at)
            now = stopwatch_ns()

    cdef void drain_signals(self) noexcept nogil:
        cdef PollState *ps = &self.ps
        cdef void *at
        cdef void *following
        ps.epoch += 1   # connections may go on with what they had read before
        pthread_mutex_lock(&ps.lock)
        at = ps.signalled
        ps.signalled = NULL
        pthread_mutex_unlock(&ps.lock)
        while at != NULL:
            pthread_mutex_lock(&ps.lock)
            following = (<Connection> at).sig_next
            clear_signal(<Connection> at)
            pthread_mutex_unlock(&ps.lock)
            on_signal(<Connection> at)
            at = following

    cdef void expire_timers(self) noexcept nogil:
        cdef Timer *t
        while True:
            t = timer_expired(&self.ps.timers, self.ps.now)
            if t == NULL:
                break
            (<Connection> t.owner).on_timer(t)

    cdef void settle(self) noexcept nogil:
        # The clock may have moved since the round began, and this round may have read the wake that said so.
        cdef PollState *ps = &self.ps
        cdef int64_t now = monotonic_ns()
        if held_due(timers_next(&ps.timers)):
            eventfd_write(ps.evfd, 1)
        elif ps.dirty == NULL and not pollstate_busy(ps):
            storei64(&self.settled, now)
            clock_settled()

    cdef void remove_closed_subs(self) noexcept nogil:
        # remove_departed takes as long for one subscription as for thousands: remove for at least as long as it took.
        cdef PollState *ps = &self.ps
        cdef int64_t now = stopwatch_ns()
        cdef int64_t end = now + max(REMOVING, self.departures_ns)
        cdef void *at
        while ps.leaving != NULL and (now < end or load8(&ps.hurry)):
            at = ps.leaving
            (<Connection> at).leave()
            now = stopwatch_ns()
        remove_departed()
        self.departures_ns = stopwatch_ns() - now


cdef void take_turn(Connection c) noexcept nogil:
    c.take_turn()


cdef void clear_signal(Connection c) noexcept nogil:
    c.sig_queued = 0


cdef void on_signal(Connection c) noexcept nogil:
    if c.torn:
        c.post_closed()
    else:
        c.on_signal()


cdef int watch(PollState *ps, int fd, void *mark) noexcept nogil:
    cdef epoll_event ev
    ev.events = EPOLLIN
    ev.data.ptr = mark
    return epoll_ctl(ps.epfd, EPOLL_CTL_ADD, fd, &ev)
