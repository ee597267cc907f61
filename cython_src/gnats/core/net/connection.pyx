"""A connection; connection.pxd says which thread may touch which field, docs/locks.md gives the order of locks."""
import cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memset, strlen

from gnats.core.net.connectionbase cimport ConnectionBase
from gnats.core.net.log_records cimport (
    LOG_CLOSING_OUT_OF_MEMORY,
    LOG_FLUSH_ERROR,
    LOG_NOT_WATCHED,
    LOG_OUT_OF_MEMORY,
    LOG_PRODUCER_STALLED,
    LOG_SLOW_DEADLINE,
    LOG_SLOW_PENDING,
    LOG_SLOW_RECOVERED,
)
from gnats.core.net.outbound cimport (
    OutMark,
    OutQueue,
    outq_append,
    outq_clear,
    outq_free,
    outq_mark,
    outq_merge,
    outq_overtake,
    outq_rollback,
)
from gnats.core.net.pollstate cimport PollerBase, PollState, hand_over_first, poller_bit
from gnats.core.net.transport cimport Transport, transport_init_socket
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.const cimport DEFAULT_FLUSH_DEADLINE, MAX_PENDING_SIZE
from gnats.core.runtime.inbox cimport EV_CLOSED, SHORT_READ, Event, inbox_full, inbox_owes
from gnats.core.runtime.state cimport MAX_POLLERS, ServerState
from gnats.core.runtime.timers cimport Timer, timer_clear, timer_set
from gnats.includes.atomics cimport (
    add32,
    add64,
    bump64,
    exchange64,
    load8,
    load8_acquire,
    load32,
    or64,
    store8,
    store8_release,
    store32,
    store64,
    unlikely,
)
from gnats.includes.linux cimport (
    EAGAIN,
    EINTR,
    EPOLL_CTL_ADD,
    EPOLL_CTL_DEL,
    EPOLL_CTL_MOD,
    EPOLLERR,
    EPOLLHUP,
    EPOLLIN,
    EPOLLOUT,
    MSG_DONTWAIT,
    MSG_TRUNC,
    SHUT_WR,
    close,
    epoll_ctl,
    epoll_event,
    errno,
    eventfd_write,
    recv,
    shutdown,
)
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.includes.times cimport duration_of, time_after, time_before

cdef enum:
    FLUSH_OVER = 256 * 1024        # bytes; flush in place beyond this: memory stays hot, and consumers begin to read
    MORE_AFTER = 16 * 1024         # bytes; a read of this many is part of a stream, and more will come
    OVERTAKE_FROM = 64 * 1024      # bytes; a PONG that waits behind fewer is not late
    DRAIN_READS = 16               # reads that empty a socket before it is closed

cdef int64_t STALL_MIN = 2000000     # ns; a producer pauses so long for each message to a consumer over its gate,
cdef int64_t STALL_TOTAL = 10000000  # but no longer than this after one read (nats-server's numbers)
cdef int64_t STALL_REPORT = 5000000  # ns; a pause of this length is logged


@cython.no_gc_clear
cdef class Connection(ConnectionBase):
    """One connection, or an internal subscriber (fd -1) of kind SYSTEM, JETSTREAM or ACCOUNT.

    It owns the connected, non-blocking socket `fd` from construction on. Python calls its methods on the control loop
    only. `write_deadline` is in seconds, `max_pending` in bytes.
    """

    def __cinit__(
        self,
        int kind,
        int fd,
        uint64_t cid,
        PollerBase poller not None,
        ServerState state not None,
        *_session_args,
        size_t max_pending=MAX_PENDING_SIZE,
        double write_deadline=DEFAULT_FLUSH_DEADLINE,
        bint retries=False,
        **_session,
    ):
        pthread_mutex_init(&self.lock, NULL)
        self.keep = [poller]
        self.kind = kind
        self.admitted = 1
        self.fd = fd
        self.cid = cid
        self.ps = &poller.ps
        self.inbox = poller.inbox
        self.server = state
        self.max_pending = max_pending
        self.gate = max_pending // 4 * 3
        self.flush_over = FLUSH_OVER if FLUSH_OVER < self.gate else self.gate
        self.write_deadline = duration_of(write_deadline)
        self.retries = retries
        self.start_time = monotonic_ns()
        self.write_timer.owner = self.stall_timer.owner = <void *> self
        self.write_timer.kind = T_WRITE
        self.stall_timer.kind = T_STALL
        transport_init_socket(&self.socket, <void *> self, self.ps, fd)
        self.transport = &self.socket
        self.source.owner = <void *> self
        self.closed_event.client = <void *> self
        self.closed_event.about = &self.source
        self.closed_event.kind = EV_CLOSED
        self.closed_event.lent = 1
        if fd >= 0:
            self.source.resume = caught_up

    def __dealloc__(self):
        cdef Transport *layer
        # Python drops a started connection only after its EV_CLOSED: no list of the poller names it any more.
        if self.ps != NULL:
            if self.source.head != NULL or self.source.shares != NULL:
                self.inbox.forget(&self.source)
            if self.fd >= 0:
                close(self.fd)
            # Never return chunks to the poller's pool: this is another thread.
            outq_free(&self.remote)
            outq_free(&self.out)
        while self.layers != NULL:
            layer = self.layers
            self.layers = layer.owned
            layer.type.free(layer)
        free(self.last_subs)
        pthread_mutex_destroy(&self.lock)

    # -- called from Python --------------------------------------------------------------------------------------

    @property
    def closed_reason(self) -> int:
        """The gnats.connection.closed_state.ClosedState it was closed for; 0 while open."""
        return load32(&self.reason)

    def abort(self) -> None:
        """Finish a close that waits for the peer to read: drop the bytes that are queued."""
        self.request(CTL_ABORT, 0)

    def enqueue_proto(self, bytes data not None) -> None:
        """Queue protocol bytes for the peer, and have the poller flush them."""
        self.append_remote(data)
        self.request(0, 0)

    def append_remote(self, bytes data not None) -> None:
        """Queue bytes without waking the poller. Without memory the connection is closed."""
        cdef OutMark mark
        pthread_mutex_lock(&self.lock)
        if not self.refused:
            mark = outq_mark(&self.remote)
            if outq_append(&self.remote, NULL, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)) < 0:
                outq_rollback(&self.remote, NULL, &mark)
                self.refuse_out_of_memory()
            store8_release(&self.has_remote, 1)
        pthread_mutex_unlock(&self.lock)

    cdef void close_without_memory(self):
        pthread_mutex_lock(&self.lock)
        self.refuse_out_of_memory()
        pthread_mutex_unlock(&self.lock)
        self.request(0, 0)

    def request(self, uint32_t ctl, uint32_t reason) -> None:
        """Leave a CTL_* request for the owner and signal it. Do nothing once the socket is closed."""
        cdef bint gone
        pthread_mutex_lock(&self.ps.lock)
        gone = self.torn
        pthread_mutex_unlock(&self.ps.lock)
        if gone:
            return   # EV_CLOSED may have been handled: the inbox would keep us for good
        self.inbox.named.add(self)
        pthread_mutex_lock(&self.lock)
        self.ctl |= ctl
        if reason and self.ctl_reason == 0:
            self.ctl_reason = reason
        pthread_mutex_unlock(&self.lock)
        self.signal_owner()

    # -- signals, events and timers: the owner -------------------------------------------------------------------

    cdef void signal_owner(self) noexcept nogil:
        """Have the owner call on_signal in its next round. Any thread."""
        cdef PollState *ps = self.ps
        cdef bint wake = False
        pthread_mutex_lock(&ps.lock)
        if not self.sig_queued and not self.torn:
            wake = ps.signalled == NULL
            self.sig_queued = 1
            self.sig_next = ps.signalled
            ps.signalled = <void *> self
        pthread_mutex_unlock(&ps.lock)
        if wake:
            eventfd_write(ps.evfd, 1)

    cdef void on_signal(self) noexcept nogil:
        cdef uint32_t ctl, reason
        cdef OutQueue taken
        lock_remote(self)
        ctl = self.ctl
        reason = self.ctl_reason
        self.ctl = self.ctl_reason = 0
        self.merge_remote(&taken)
        unlock_remote(self)
        if self.session.announce != NULL:
            self.interest_waits = self.session.announce(self, taken.bytes != 0)
            outq_merge(&self.out, &taken, &self.ps.pool)
        self.session.on_control(self, ctl)
        if load8(&self.closing):
            if not self.draining:
                outq_clear(&self.out, &self.ps.pool)
            elif ctl & CTL_ABORT:
                self.finish_close()
            return
        if ctl & CTL_START:
            self.begin()
        if ctl & CTL_CLOSE:
            if reason == SLOW_CONSUMER_PENDING_BYTES:
                self.report_slow_consumer()
            self.close_connection_nogil(reason)
            return
        if self.out.bytes:
            self.mark_dirty()
        elif load8(&self.gated):
            self.release_stalled()
        if ctl & CTL_RESUME and self.paused & UNANSWERED:
            self.paused &= ~<uint8_t> UNANSWERED
            if self.session.resume(self):
                self.input_handled()
            self.resume_reading()
        if ctl & CTL_GO_ON and self.paused & BEHIND:
            self.paused &= ~<uint8_t> BEHIND
            self.resume_reading()

    cdef void begin(self) noexcept nogil:
        cdef epoll_event ev
        self.started = 1
        self.set_trace_level()
        add32(&self.ps.nclients, 1)
        ev.events = self.interest = EPOLLIN
        ev.data.ptr = <void *> self
        self.watched = 1
        if epoll_ctl(self.ps.epfd, EPOLL_CTL_ADD, self.fd, &ev) < 0:
            self.watched = 0
            self.log(LOG_NOT_WATCHED, errno, NULL, 0)
            self.close_connection_nogil(READ_ERROR)
        elif self.transport.type.begin != NULL:
            self.transport.type.begin(self.transport)
        else:
            self.begin_session()

    cdef void begin_session(self) noexcept nogil:
        # A closing connection must not start the session's timers: they would outlive it.
        if not load8(&self.closing):
            self.session.begin(self)

    cdef void set_interest(self, uint32_t events) noexcept nogil:
        cdef epoll_event ev
        if self.fd < 0 or (events == self.interest and self.watched):
            return
        self.interest = ev.events = events
        ev.data.ptr = <void *> self
        if epoll_ctl(self.ps.epfd, EPOLL_CTL_MOD if self.watched else EPOLL_CTL_ADD, self.fd, &ev) < 0:
            # epoll would never report it again. Close later: the caller goes on with the connection.
            self.log(LOG_NOT_WATCHED, errno, NULL, 0)
            self.close_soon(READ_ERROR)
            return
        self.watched = 1

    cdef void set_timer(self, Timer *t, int64_t wait) noexcept nogil:
        if timer_set(&self.ps.timers, t, time_after(self.ps.now, wait)) < 0:
            self.log(LOG_CLOSING_OUT_OF_MEMORY, 0, NULL, 0)
            self.close_soon(READ_ERROR)

    cdef void on_events(self, uint32_t events) noexcept nogil:
        if self.fd < 0:
            return
        if events & EPOLLOUT or (self.draining and events & (EPOLLERR | EPOLLHUP)):
            self.flush_outbound()
        if events & (EPOLLIN | EPOLLERR | EPOLLHUP) and not load8(&self.closing):
            if self.paused:
                # epoll is level-triggered: stop watching for input until reading resumes. It always reports a peer
                # that has gone, so then the socket leaves the set; the bytes it sent before that are still to be read.
                self.set_interest(self.interest & ~<uint32_t> EPOLLIN)
                if events & (EPOLLERR | EPOLLHUP) and epoll_ctl(self.ps.epfd, EPOLL_CTL_DEL, self.fd, NULL) == 0:
                    self.watched = 0
                return
            self.read_loop()

    cdef void resume_reading(self) noexcept nogil:
        if load8(&self.closing):
            return
        if self.paused & ~<uint8_t> (UNFINISHED | UNREAD):
            return
        if self.paused:
            self.wait_for_turn()
        elif unlikely(self.transport.ended):
            self.close_connection_nogil(self.transport.ended)
        else:
            self.set_interest(self.interest | EPOLLIN)

    cdef void on_timer(self, Timer *t) noexcept nogil:
        cdef Transport *layer = self.transport
        if t.kind >= SESSION_TIMERS:
            self.session.expired(self, t)
        elif t.kind == T_STALL:
            self.unpause()
        elif t.kind == T_TRANSPORT:
            while layer.type.timer == NULL or layer.type.timer(layer) != t:
                layer = layer.below
            layer.type.expired(layer)
        elif self.draining:
            self.finish_close()
        else:
            self.miss_write_deadline()

    # -- reading -------------------------------------------------------------------------------------------------

    cdef void read_loop(self) noexcept nogil:
        """Read the socket once and feed the session. epoll reports again what is left, so connections take turns."""
        cdef long n
        cdef size_t want, got, room
        cdef PollState *ps = self.ps
        cdef char *to = self.session.wants(self, &want)
        # While the inbox is full, read little: a read must not cause much more.
        room = <size_t> SHORT_READ if inbox_full(self.inbox) else ps.rbuf_len
        n = self.transport.type.receive(self.transport, to, want, room)
        if n <= 0:
            if n == 0:
                self.close_connection_nogil(CLIENT_CLOSED)
            elif n != -EAGAIN and n != -EINTR:
                self.close_connection_nogil(READ_ERROR)
            return
        bump64(&ps.reads, 1)
        ps.epoch += 1
        # Waits that this read begins are counted from now: from the start of a long batch they would end too early.
        ps.now = monotonic_ns()
        self.set_trace_level()
        got = <size_t> n
        if got >= MORE_AFTER:
            ps.more = 1
        if want > got:
            want = got
        self.session.feed(self, want, ps.rbuf, got - want)
        self.input_handled()
        self.look_for_more()
        if unlikely(self.paused or self.transport.ended):
            self.resume_reading()

    cdef void look_for_more(self) noexcept nogil:
        if self.transport.type.more != NULL and self.transport.type.more(self.transport):
            self.paused |= UNREAD

    cdef void input_handled(self) noexcept nogil:
        if load8(&self.closing):
            return
        if unlikely(self.paused & UNFINISHED):
            self.ps.more = 1
        self.wait_for_control()
        if self.stall_ns and not self.paused & STALLED:
            if self.stall_ns >= STALL_REPORT:
                self.log(LOG_PRODUCER_STALLED, self.stall_ns, NULL, 0)
            self.pause(self.stall_ns)
            self.stall_ns = 0

    cdef void wait_for_turn(self) noexcept nogil:
        cdef PollState *ps = self.ps
        if self.waiting:
            return
        self.waiting = 1
        self.waiting_next = NULL
        if ps.waiting == NULL:
            ps.waiting = <void *> self
        else:
            set_waiting_next(<Connection> ps.waiting_last, <void *> self)
        ps.waiting_last = <void *> self

    cdef void take_turn(self) noexcept nogil:
        self.waiting = 0
        self.ps.waiting = self.waiting_next
        if self.torn:
            self.post_closed()
            return
        if load8(&self.closing) or self.paused & ~<uint8_t> (UNFINISHED | UNREAD):
            return
        if self.paused & UNFINISHED:
            self.paused &= ~<uint8_t> UNFINISHED
            self.ps.epoch += 1
            self.ps.now = monotonic_ns()
            self.set_trace_level()
            self.session.resume(self)
            self.input_handled()
        else:
            self.paused = 0
            self.read_loop()
        self.resume_reading()

    # -- writing -------------------------------------------------------------------------------------------------

    cdef void mark_dirty(self) noexcept nogil:
        if not self.dirty:
            self.dirty = 1
            self.dirty_next = self.ps.dirty
            self.ps.dirty = <void *> self

    cdef void merge_remote(self, OutQueue *taken) noexcept nogil:
        """Append what other threads have queued to `out`, or with SessionType.announce to `taken`. The lock is held."""
        store8(&self.has_remote, 0)
        if unlikely(self.session.announce != NULL):
            memset(taken, 0, sizeof(OutQueue))
            outq_merge(taken, &self.remote, &self.ps.pool)
        else:
            outq_merge(&self.out, &self.remote, &self.ps.pool)

    cdef void take_remote(self) noexcept nogil:
        """Append what other threads have queued to `out`, ahead of what the owner queues next.

        Publisher A has its PONG, so everything that A sent before is in `out` or `remote`. It must leave ahead of what
        was caused later.
        """
        cdef OutQueue taken
        lock_remote(self)
        self.merge_remote(&taken)
        unlock_remote(self)
        if unlikely(self.session.announce != NULL):
            self.session.announce(self, True)
            outq_merge(&self.out, &taken, &self.ps.pool)   # behind the interest that came before it

    cdef void queue_outbound(self, const char *p, size_t n) noexcept nogil:
        """Queue protocol bytes for the peer; the end of the batch flushes them."""
        if load8(&self.closing) or self.fd < 0:
            return
        if load8_acquire(&self.has_remote):
            self.take_remote()
        if outq_append(&self.out, &self.ps.pool, p, n) < 0:
            self.out_of_memory(WRITE_ERROR)
            return
        self.mark_dirty()
        if self.out.bytes > self.flush_over:
            self.outbound_over(self)

    cdef void queue_control(self, const char *text) noexcept nogil:
        if self.out.bytes < OVERTAKE_FROM or load8(&self.closing) or self.fd < 0:
            self.queue_outbound(text, strlen(text))
            return
        if outq_overtake(&self.out, &self.ps.pool, text, strlen(text)) < 0:
            self.out_of_memory(WRITE_ERROR)
            return
        self.mark_dirty()
        if self.out.bytes > self.flush_over:
            self.outbound_over(self)

    cdef void flush_outbound(self) noexcept nogil:
        cdef long n
        cdef size_t left
        if self.fd < 0:
            return
        hand_over_first(self.ps)
        n = self.transport.type.flush(self.transport, &self.out)
        if n < 0:
            if self.draining:
                self.finish_close()
                return
            self.debugf(LOG_FLUSH_ERROR, -n, NULL, 0)
            self.close_connection_nogil(WRITE_ERROR)
            return
        self.sent += n
        left = self.unsent()
        store64(&self.backlog, left)
        if unlikely(self.interest_waits) and left <= self.gate:
            self.interest_waits = 0
            self.signal_owner()   # on_signal goes on with it
        if left == 0:
            if self.want_write:
                self.want_write = 0
                self.set_interest(self.interest & ~<uint32_t> EPOLLOUT)
                timer_clear(&self.ps.timers, &self.write_timer)
            if self.slow:
                self.recover()
            if self.draining:
                self.finish_close()
                return
        else:
            if not self.want_write:
                self.want_write = 1
                self.set_interest(self.interest | EPOLLOUT)
                self.set_write_deadline(self.sent - n, left)
            elif self.sent >= self.deadline_mark and not self.draining:
                # All that was queued when the deadline was set has been sent. Set one for what was queued since.
                if self.slow:
                    self.recover()
                self.set_write_deadline(self.deadline_mark, left)
        if load8(&self.gated) and self.out.bytes <= self.gate:
            self.release_stalled()

    cdef void set_write_deadline(self, uint64_t start, size_t left) noexcept nogil:
        self.deadline_from = start
        self.deadline_mark = self.sent + left
        self.deadline_set = self.ps.now
        self.set_timer(&self.write_timer, self.write_deadline)

    cdef void miss_write_deadline(self) noexcept nogil:
        cdef char[64] detail
        cdef uint32_t chunks = self.transport.type.chunks(self.transport, &self.out)
        cdef size_t left = self.unsent()
        if self.admitted or self.transport.below != NULL:
            snprintf(detail, sizeof(detail), b"%u %zu%s", chunks, left, b" still" if self.slow else b"")
            add64(&self.server._slow_consumers, 1)
            self.log(LOG_SLOW_DEADLINE, self.write_deadline, detail, strlen(detail))
        if self.retries and self.admitted and self.sent > self.deadline_from:
            bump64(&self.nslow, 1)
            store8(&self.slow, 1)
            self.deadline_chunks = chunks
            self.set_write_deadline(self.sent, left)
        else:
            self.close_connection_nogil(SLOW_CONSUMER_WRITE_DEADLINE)

    cdef void recover(self) noexcept nogil:
        cdef char[64] detail
        snprintf(
            detail, sizeof(detail), b"%u %llu", self.deadline_chunks,
            <unsigned long long> (self.deadline_mark - self.deadline_from))
        self.log(LOG_SLOW_RECOVERED, self.ps.now - self.deadline_set, detail, strlen(detail))
        store8(&self.slow, 0)

    cdef size_t unsent(self) noexcept nogil:
        """Return the bytes queued for the socket, without those that wait for the end of a handshake."""
        return self.transport.type.unsent(self.transport, &self.out)

    cdef void outbound_over(self, Connection producer) noexcept nogil:
        """The queue is long: flush it. If the socket takes too little, stall the producer, or close us."""
        if not self.want_write:
            self.flush_outbound()
            if load8(&self.closing):
                return
        store64(&self.backlog, self.out.bytes)
        if self.out.bytes > self.max_pending:
            self.report_slow_consumer()
            self.close_connection_nogil(SLOW_CONSUMER_PENDING_BYTES)
        elif self.out.bytes > self.gate and producer is not self:
            self.stall(producer)

    cdef void report_slow_consumer(self) noexcept nogil:
        add64(&self.server._slow_consumers, 1)
        self.log(LOG_SLOW_PENDING, self.max_pending, NULL, 0)

    # -- stalled producers ---------------------------------------------------------------------------------------

    cdef void stall(self, Connection producer) noexcept nogil:
        """Have `producer`, of the calling poller, pause after its current read: our queue is over the gate."""
        store8(&self.gated, 1)
        if not producer.may_stall or producer.stall_ns >= STALL_TOTAL:
            return
        if load8(&self.server._no_stall):
            return   # deliveries over the gate are dropped instead
        or64(&self.stall_waiters, poller_bit(producer.ps))
        producer.stall_ns += STALL_MIN
        bump64(&producer.nstalls, 1)
        add64(&producer.server._stalls, 1)

    cdef void wait_for_control(self) noexcept nogil:
        """Stop reading if too many of our events wait for the control plane.

        nats-server's read loop logs and answers before it reads on; this has the same effect.
        """
        if unlikely(inbox_owes(&self.source)) and not load8(&self.closing):
            if self.inbox.park(&self.source):
                self.paused |= BEHIND
                self.set_interest(self.interest & ~<uint32_t> EPOLLIN)

    cdef void pause(self, int64_t ns) noexcept nogil:
        self.paused |= STALLED
        self.set_interest(self.interest & ~<uint32_t> EPOLLIN)
        self.stall_prev = NULL
        self.stall_next = self.ps.stalled
        if self.stall_next != NULL:
            set_stall_prev(<Connection> self.stall_next, <void *> self)
        self.ps.stalled = <void *> self
        self.set_timer(&self.stall_timer, time_after(time_before(monotonic_ns(), self.ps.now), ns))

    cdef void unpause(self) noexcept nogil:
        timer_clear(&self.ps.timers, &self.stall_timer)
        if not self.paused & STALLED:
            return
        self.paused &= ~<uint8_t> STALLED
        if self.stall_prev == NULL:
            self.ps.stalled = self.stall_next
        else:
            set_stall_next(<Connection> self.stall_prev, self.stall_next)
        if self.stall_next != NULL:
            set_stall_prev(<Connection> self.stall_next, self.stall_prev)
        self.resume_reading()

    cdef void release_stalled(self) noexcept nogil:
        """The queue is below the gate: have the pollers that stalled producers for us resume them."""
        cdef uint64_t waiters = exchange64(&self.stall_waiters, 0)
        cdef uint32_t i
        cdef PollState *ps
        store8(&self.gated, 0)
        for i in range(MAX_POLLERS):
            if waiters >> i & 1:
                ps = <PollState *> self.server.pollers[i]
                store8_release(&ps.resume_stalled, 1)
                if ps != self.ps:
                    eventfd_write(ps.evfd, 1)

    # -- closing -------------------------------------------------------------------------------------------------

    cdef void out_of_memory(self, uint32_t reason) noexcept nogil:
        if load8(&self.closing):
            return
        if self.fd < 0:
            self.log(LOG_OUT_OF_MEMORY, 0, NULL, 0)
            return
        self.log(LOG_CLOSING_OUT_OF_MEMORY, 0, NULL, 0)
        self.close_connection_nogil(reason)

    cdef void refuse_out_of_memory(self) noexcept nogil:
        self.log(LOG_CLOSING_OUT_OF_MEMORY, 0, NULL, 0)
        self.refuse_more(WRITE_ERROR)

    cdef void refuse_more(self, uint32_t reason) noexcept nogil:
        self.refused = 1
        self.ctl |= CTL_CLOSE
        if self.ctl_reason == 0:
            self.ctl_reason = reason

    cdef void close_soon(self, uint32_t reason) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.refuse_more(reason)
        self.ctl |= CTL_ABORT   # in case it is draining already
        pthread_mutex_unlock(&self.lock)
        self.signal_owner()

    cdef void close_connection_nogil(self, uint32_t reason) noexcept nogil:
        """Stop reading and routing, flush what is queued, close. The owner calls it."""
        cdef bint skip_flush = (
            reason == READ_ERROR or reason == WRITE_ERROR or reason == SLOW_CONSUMER_PENDING_BYTES
            or reason == SLOW_CONSUMER_WRITE_DEADLINE or reason == TLS_HANDSHAKE_ERROR)
        cdef Transport *layer = self.transport
        cdef OutQueue taken
        if load8(&self.closing):
            return
        hand_over_first(self.ps)
        lock_remote(self)
        store8(&self.closing, 1)
        self.refused = 1
        self.merge_remote(&taken)
        unlock_remote(self)
        if self.session.announce != NULL:
            outq_merge(&self.out, &taken, &self.ps.pool)   # no interest: the peer is about to forget all
        store32(&self.reason, reason)
        while layer != NULL:
            if layer.type.timer != NULL:
                timer_clear(&self.ps.timers, layer.type.timer(layer))
            layer = layer.below
        self.unpause()
        if self.session.closing(self):
            self.leave_later()
        self.release_stalled()
        if not skip_flush and self.fd >= 0 and self.started and self.unsent():
            self.draining = 1
            self.want_write = 0
            self.set_interest(0)
            self.flush_outbound()
            return
        self.finish_close()

    cdef void leave_later(self) noexcept nogil:
        """Have the poller remove our subscriptions after its batches, some at a time."""
        cdef PollState *ps = self.ps
        self.leaving = 1
        self.leaving_next = NULL
        if ps.leaving == NULL:
            ps.leaving = <void *> self
            eventfd_write(ps.evfd, 1)   # the batch may be publish_internal's: no round follows by itself
        else:
            set_leaving_next(<Connection> ps.leaving_last, <void *> self)
        ps.leaving_last = <void *> self

    cdef bint leave(self) noexcept nogil:
        if self.session.leave(self):
            return True
        self.leaving = 0
        self.ps.leaving = self.leaving_next
        if self.torn:
            self.post_closed()
        return False

    cdef void finish_close(self) noexcept nogil:
        cdef int _i
        if self.fd >= 0:
            epoll_ctl(self.ps.epfd, EPOLL_CTL_DEL, self.fd, NULL)
            while self.transport.below != NULL:
                self.transport.type.end(self.transport)
                self.transport = self.transport.below
                self.draining = 1   # the layer may have sent an alert, which the peer must be able to read
            if self.draining:
                # Unread bytes would turn the close into a reset, which can overtake the -ERR just sent.
                shutdown(self.fd, SHUT_WR)
                for _i in range(DRAIN_READS):
                    if recv(self.fd, NULL, self.ps.rbuf_len, MSG_DONTWAIT | MSG_TRUNC) <= 0:
                        break
            close(self.fd)
            self.fd = -1
        self.draining = 0
        timer_clear(&self.ps.timers, &self.write_timer)
        outq_clear(&self.out, &self.ps.pool)
        # Keep what the parser holds: the message that overran our own queue is still being delivered to others.
        if self.started:
            add32(&self.ps.nclients, <uint32_t> -1)
        pthread_mutex_lock(&self.ps.lock)
        self.torn = 1
        pthread_mutex_unlock(&self.ps.lock)
        self.post_closed()

    cdef void post_closed(self) noexcept nogil:
        """Post EV_CLOSED once no list of the poller names the connection; Python may drop it then."""
        cdef bint now
        cdef Event *ev
        pthread_mutex_lock(&self.ps.lock)
        now = self.torn == 1 and not self.sig_queued and not self.dirty and not self.leaving and not self.waiting
        if now:
            self.torn = 2
        pthread_mutex_unlock(&self.ps.lock)
        if now:
            ev = &self.closed_event
            ev.a = load32(&self.reason)
            ev.b = self.last_nsubs
            ev.more = self.last_subs
            ev.len = self.last_subs_len
            ev.size = sizeof(Event) + ev.len
            self.last_subs = NULL
            self.inbox.post(ev)


cdef inline void lock_remote(Connection c) noexcept nogil:
    """Lock the connection to merge `remote`: not while another poller hands messages over to it and others."""
    pthread_mutex_lock(&c.ps.receiving)
    pthread_mutex_lock(&c.lock)


cdef inline void unlock_remote(Connection c) noexcept nogil:
    pthread_mutex_unlock(&c.lock)
    pthread_mutex_unlock(&c.ps.receiving)


cdef void caught_up(void *owner) noexcept nogil:
    """Source.resume: ask the owner to read again. The control loop calls it."""
    pthread_mutex_lock(&(<Connection> owner).lock)
    add_control(<Connection> owner, CTL_GO_ON)
    pthread_mutex_unlock(&(<Connection> owner).lock)
    (<Connection> owner).signal_owner()


cdef void add_control(Connection c, uint32_t ctl) noexcept nogil:
    c.ctl |= ctl


cdef void set_stall_prev(Connection c, void *prev) noexcept nogil:
    c.stall_prev = prev


cdef void set_leaving_next(Connection c, void *following) noexcept nogil:
    c.leaving_next = following


cdef void set_waiting_next(Connection c, void *following) noexcept nogil:
    c.waiting_next = following


cdef void set_stall_next(Connection c, void *following) noexcept nogil:
    c.stall_next = following
