"""A connection; see connection.pxd for who may touch what, docs/locks.md for the order of locks."""
import cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.clock cimport monotonic_ns, realtime_ns
from gnats.core.inbox cimport EV_CLOSED, SHORT_READ, Event, Inbox, inbox_full, inbox_owes, inbox_reading
from gnats.core.kinds cimport CLIENT
from gnats.core.outbound cimport (
    OutMark,
    outq_append,
    outq_clear,
    outq_free,
    outq_mark,
    outq_merge,
    outq_rollback,
)
from gnats.core.parser cimport PARSE_OK, PARSE_PUNT
from gnats.core.pollstate cimport PollerBase, PollState, poller_random
from gnats.core.quoting cimport quote, quote_room
from gnats.core.records cimport (
    LOG_AUTH_TIMEOUT,
    LOG_CLOSING_OUT_OF_MEMORY,
    LOG_FLUSH_ERROR,
    LOG_NOT_WATCHED,
    LOG_OUT_OF_MEMORY,
    LOG_PING_DELAYED,
    LOG_PING_TIMER,
    LOG_PRODUCER_STALLED,
    LOG_SLOW_DEADLINE,
    LOG_SLOW_PENDING,
    LOG_STALE,
    TRACE_OUT,
    Recorder,
)
from gnats.core.state cimport MAX_POLLERS, ServerState
from gnats.core.timers cimport Timer, timer_clear, timer_set
from gnats.core.transport cimport Transport, transport_init_socket
from gnats.includes.atomics cimport (
    add32,
    add64,
    bump64,
    exchange64,
    load8,
    load8_acquire,
    load32,
    load64,
    loadi64,
    or64,
    store8,
    store8_release,
    store32,
    store64,
    storei64,
    unlikely,
)
from gnats.includes.layout cimport static_assert
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
from gnats.includes.text cimport put_text
from gnats.includes.times cimport duration_of, time_after, time_before

cdef enum:
    FLUSH_OVER = 256 * 1024        # flush in place beyond this: memory stays hot, readers get going
    MORE_AFTER = 16 * 1024         # a read of this much is part of a stream: more will come
    DRAIN_READS = 16               # reads that empty a socket before it is closed

cdef int64_t SECOND = 1000000000
cdef int64_t STALL_MIN = 2000000     # for each message to a consumer over its gate, up to this much for one read
cdef int64_t STALL_TOTAL = 10000000  # (nats-server's numbers)
cdef int64_t STALL_REPORT = 5000000  # from here on it is worth a line in the log
cdef int64_t FIRST_PING = 2 * SECOND
cdef int64_t RTT_INTERVAL = 3600 * SECOND


@cython.no_gc_clear
cdef class Connection(Recorder):
    """One connection, or an internal subscriber (fd -1) of kind SYSTEM, JETSTREAM or ACCOUNT.

    The socket `fd`, connected and non-blocking, belongs to it from the moment of construction. Python calls these
    methods on the control loop only. `write_deadline` and `ping_interval` are in seconds, sizes in bytes; -1 for
    max_payload or max_subs means no limit.
    """

    def __cinit__(
        self,
        int kind,
        int fd,
        uint64_t cid,
        PollerBase poller not None,
        ServerState state not None,
        *,
        int max_control_line=4096,
        int max_payload=1048576,
        size_t max_pending=67108864,
        int max_subs=-1,
        double write_deadline=10.0,
        double ping_interval=120.0,
        int ping_max=2,
    ):
        pthread_mutex_init(&self.lock, NULL)
        self.keep = [poller, state, poller.inbox]
        self.kind = kind
        self.fd = fd
        self.cid = cid
        self.ps = &poller.ps
        self.inbox = <void *> poller.inbox
        self.server = <void *> state
        self.max_control_line = max_control_line
        self.max_payload = max_payload
        self.max_subs = max_subs
        self.max_pending = max_pending
        self.gate = max_pending // 4 * 3
        self.flush_over = FLUSH_OVER if FLUSH_OVER < self.gate else self.gate
        self.write_deadline = duration_of(write_deadline)
        self.ping_interval = duration_of(ping_interval)
        self.ping_max = ping_max
        self.opts.echo = 1
        self.opts.verbose = self.opts.pedantic = self.pedantic = kind == CLIENT
        self.start_time = monotonic_ns()
        self.auth_timer.owner = self.ping_timer.owner = <void *> self
        self.write_timer.owner = self.stall_timer.owner = <void *> self
        self.auth_timer.kind = T_AUTH
        self.ping_timer.kind = T_PING
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
        else:
            self.headers = 1
            self.opts.headers = 1

    def __dealloc__(self):
        cdef Transport *layer
        # A started connection is dropped only after its EV_CLOSED, so the poller has let go of everything.
        if self.ps != NULL:
            if self.source.head != NULL and self.keep:
                (<Inbox> self.inbox).forget(&self.source)
            if self.fd >= 0:
                close(self.fd)
            # never into the poller's pool: this is not its thread
            outq_free(&self.remote)
            outq_free(&self.out)
        while self.layers != NULL:
            layer = self.layers
            self.layers = layer.owned
            layer.type.free(layer)
        free(self.pre)
        free(self.connect_info)
        free(self.last_subs)
        pthread_mutex_destroy(&self.lock)

    # -- what Python calls ---------------------------------------------------------------------------------------

    @property
    def kind(self) -> int:
        """CLIENT, ROUTER, GATEWAY, SYSTEM, LEAF, JETSTREAM or ACCOUNT."""
        return self.kind

    @property
    def closed_reason(self) -> int:
        """A gnats.reasons.ClosedState, 0 while open."""
        return load32(&self.reason)

    def start(self, bytes info not None, *, bint expect_connect, double auth_timeout=0.0) -> None:
        """Hand the connection to its poller: send `info`, then read.

        With `expect_connect`, any verb but CONNECT is an authorization violation, and after `auth_timeout` seconds
        without one the connection is closed.
        """
        self.auth_set = expect_connect
        self.auth_timeout = duration_of(auth_timeout) if expect_connect else 0
        self.append_remote(info)
        self.request(CTL_START, 0)

    def refuse(self, bytes info not None, int reason, str err not None) -> None:
        """Greet, send `-ERR 'err'` and close, without reading anything."""
        self.append_remote(info + f"-ERR '{err}'\r\n".encode())
        self.request(CTL_START | CTL_CLOSE, reason)

    def resume(self) -> None:
        """Go on parsing after a punted INFO has been answered."""
        self.request(CTL_RESUME, 0)

    def close_connection(self, int reason, str err=None) -> None:
        """Send `-ERR 'err'` if given and close; EV_CLOSED follows once the poller has done it. Idempotent."""
        if err is not None:
            self.append_remote(f"-ERR '{err}'\r\n".encode())
        self.request(CTL_CLOSE, reason)

    def abort(self) -> None:
        """Drop what is queued: a close that waits for its peer to read goes through now."""
        self.request(CTL_ABORT, 0)

    def set_limits(
        self, *, int max_control_line, int max_payload, int max_subs, double ping_interval, int ping_max
    ) -> None:
        """Limits from now on, -1 for none; subscriptions over theirs stay."""
        pthread_mutex_lock(&self.lock)
        self.staged_limits.max_control_line = max_control_line
        self.staged_limits.max_payload = max_payload
        self.staged_limits.max_subs = max_subs
        self.staged_limits.ping_interval = duration_of(ping_interval)
        self.staged_limits.ping_max = ping_max
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_LIMITS, 0)

    def enqueue_proto(self, bytes data not None) -> None:
        """Queue protocol bytes for the peer and have the poller flush them."""
        self.append_remote(data)
        self.request(0, 0)

    def append_remote(self, bytes data not None) -> None:
        """Queue bytes without waking the poller; without memory the connection is closed."""
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
        """Leave a CTL_* request for the owner and signal it; nothing when it has closed us."""
        cdef bint gone
        pthread_mutex_lock(&self.ps.lock)
        gone = self.torn
        pthread_mutex_unlock(&self.ps.lock)
        if gone:
            return   # the inbox may have let go of us already, and nobody would have it let go again
        (<Inbox> self.inbox).named.add(self)
        pthread_mutex_lock(&self.lock)
        self.ctl |= ctl
        if reason and self.ctl_reason == 0:
            self.ctl_reason = reason
        pthread_mutex_unlock(&self.lock)
        self.signal_owner()

    def snapshot(self) -> dict:
        """Counters for monitoring: a relaxed view, not a consistent cut. Times in ns (last_activity since 1970)."""
        cdef uint64_t pending, msgs, size
        pthread_mutex_lock(&self.lock)
        pending = load64(&self.backlog) + self.remote.bytes
        msgs = self.remote_msgs
        size = self.remote_bytes
        pthread_mutex_unlock(&self.lock)
        return {
            "pending_bytes": pending,
            "in_msgs": load64(&self.in_msgs),
            "out_msgs": load64(&self.out_msgs) + msgs,
            "in_bytes": load64(&self.in_bytes),
            "out_bytes": load64(&self.out_bytes) + size,
            "subscriptions": load64(&self.nsubs),
            "last_activity": realtime_ns() - monotonic_ns() + (loadi64(&self.last_in) or self.start_time),
            "rtt": loadi64(&self.rtt),
            "stalls": load64(&self.nstalls),
        }

    # -- signals, events and timers: the owner -------------------------------------------------------------------

    cdef void signal_owner(self) noexcept nogil:
        """Have the owner call on_signal. Any thread."""
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
        cdef Limits limits
        pthread_mutex_lock(&self.lock)
        ctl = self.ctl
        limits = self.staged_limits
        reason = self.ctl_reason
        self.ctl = self.ctl_reason = 0
        self.merge_remote()
        pthread_mutex_unlock(&self.lock)
        self.on_control(ctl)
        if load8(&self.closing):
            if not self.draining:
                outq_clear(&self.out, &self.ps.pool)
            elif ctl & CTL_ABORT:
                self.finish_close()
            return
        if ctl & CTL_LIMITS:
            self.apply_limits(&limits)
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
        if ctl & CTL_RESUME and self.parked:
            self.parked = 0
            if self.pre != NULL:
                inbox_reading(&self.source)
                self.parse_kept()
                inbox_reading(NULL)
                self.account_batch()
                self.wait_for_control()
            self.resume_reading()
        if ctl & CTL_GO_ON and self.paused & BEHIND:
            self.paused &= ~<uint8_t> BEHIND
            self.resume_reading()

    cdef void on_control(self, uint32_t ctl) noexcept nogil:
        pass

    cdef void apply_limits(self, const Limits *limits) noexcept nogil:
        self.max_control_line = limits.max_control_line
        self.max_payload = limits.max_payload
        self.max_subs = limits.max_subs
        self.ping_max = limits.ping_max
        if self.ping_interval != limits.ping_interval:
            self.ping_interval = limits.ping_interval
            timer_clear(&self.ps.timers, &self.ping_timer)
            if limits.ping_interval > 0:
                self.set_timer(&self.ping_timer, limits.ping_interval)

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
            self.begin_protocol()

    cdef void begin_protocol(self) noexcept nogil:
        """What comes next from the peer is the protocol, unless we have been closed: no timer may outlive us."""
        if load8(&self.closing):
            return
        if self.auth_timeout > 0:
            self.set_timer(&self.auth_timer, self.auth_timeout)
        if self.ping_interval > 0:
            self.set_timer(&self.ping_timer, self.ping_interval)

    cdef void set_interest(self, uint32_t events) noexcept nogil:
        cdef epoll_event ev
        if self.fd < 0 or (events == self.interest and self.watched):
            return
        self.interest = ev.events = events
        ev.data.ptr = <void *> self
        if epoll_ctl(self.ps.epfd, EPOLL_CTL_MOD if self.watched else EPOLL_CTL_ADD, self.fd, &ev) < 0:
            # Nobody would hear of it again. Closed later: who changes what we wait for is not done with us.
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
            if self.parked or self.paused:
                # Level-triggered: do not hear of it again until reading goes on. A peer that has gone is always
                # reported, so then the socket leaves the set; what it sent before is still to be read.
                self.set_interest(self.interest & ~<uint32_t> EPOLLIN)
                if events & (EPOLLERR | EPOLLHUP) and epoll_ctl(self.ps.epfd, EPOLL_CTL_DEL, self.fd, NULL) == 0:
                    self.watched = 0
                return
            self.read_loop()

    cdef void resume_reading(self) noexcept nogil:
        if load8(&self.closing) or self.parked or self.paused:
            return
        if unlikely(self.transport.ended):
            self.close_connection_nogil(self.transport.ended)
        else:
            self.set_interest(self.interest | EPOLLIN)

    cdef void on_timer(self, Timer *t) noexcept nogil:
        cdef char[64] detail
        cdef Transport *layer = self.transport
        cdef uint32_t chunks
        if t.kind == T_PING:
            self.process_ping_timer()
        elif t.kind == T_AUTH:
            self.send_err(b"Authentication Timeout")
            self.debugf(LOG_AUTH_TIMEOUT, 0, NULL, 0)
            self.close_connection_nogil(AUTHENTICATION_TIMEOUT)
        elif t.kind == T_STALL:
            self.unpause()
        elif t.kind == T_TRANSPORT:
            while &layer.timer != t:
                layer = layer.below
            layer.type.expired(layer)
        elif self.draining:
            self.finish_close()
        else:
            chunks = layer.type.chunks(layer, &self.out)
            snprintf(detail, sizeof(detail), b"%u %zu", chunks, self.unsent())
            if not self.auth_set or layer.below != NULL:
                add64(&(<ServerState> self.server)._slow_consumers, 1)
                self.log(LOG_SLOW_DEADLINE, self.write_deadline, detail, strlen(detail))
            self.close_connection_nogil(SLOW_CONSUMER_WRITE_DEADLINE)

    cdef void set_first_ping_timer(self) noexcept nogil:
        cdef int64_t d = self.ping_interval
        if d <= 0:
            return
        if self.kind == CLIENT and d > FIRST_PING:
            d = FIRST_PING
        d = time_after(d, <int64_t> (poller_random(self.ps) % 1000) * (d // 5000))
        self.set_timer(&self.ping_timer, d)

    cdef void process_ping_timer(self) noexcept nogil:
        cdef int64_t now = self.ps.now
        cdef bint need_rtt = self.rtt == 0 or now - self.rtt_start > RTT_INTERVAL
        cdef int64_t quiet = now - self.last_in if self.last_in else now
        self.debugf(LOG_PING_TIMER, 0, NULL, 0)
        if quiet < self.ping_interval and not need_rtt:
            self.debugf(LOG_PING_DELAYED, quiet, NULL, 0)
        else:
            if self.ping_out + 1 > self.ping_max:
                self.debugf(LOG_STALE, 0, NULL, 0)
                self.send_err(b"Stale Connection")
                add64(&(<ServerState> self.server)._stale_connections, 1)
                self.close_connection_nogil(STALE_CONNECTION)
                return
            self.rtt_start = now
            self.ping_out += 1
            if self.trace:
                self.trace_line(TRACE_OUT, b"PING", 4, NULL, 0)
            self.queue_outbound(b"PING\r\n", 6)
        if not load8(&self.closing):
            self.set_timer(&self.ping_timer, self.ping_interval)

    # -- reading -------------------------------------------------------------------------------------------------

    cdef void read_loop(self) noexcept nogil:
        """One read of what the socket has, parsed. What is left makes epoll report it again: connections take
        turns."""
        cdef long n
        cdef size_t want = 0, got, room
        cdef PollState *ps = self.ps
        if self.msg_buf != NULL:
            # The rest of a split payload goes where it belongs, only what follows it through the buffer.
            want = <size_t> self.pa.size + 2 - self.msg_len
        # While the control plane has all that it may have, a read must not cause much more.
        room = <size_t> SHORT_READ if inbox_full(<Inbox> self.inbox) else ps.rbuf_len
        n = self.transport.type.receive(
            self.transport, self.msg_buf + self.msg_len if want else NULL, want, room)
        if n <= 0:
            if n == 0:
                self.close_connection_nogil(CLIENT_CLOSED)
            elif n != -EAGAIN and n != -EINTR:
                self.close_connection_nogil(READ_ERROR)
            return
        bump64(&ps.reads, 1)
        self.set_trace_level()
        self.batch_msgs = self.batch_bytes = self.batch_subs = 0
        got = <size_t> n
        if got >= MORE_AFTER:
            ps.more = 1
        inbox_reading(&self.source)
        if want:
            if self.payload_filled(got if got < want else want) == PARSE_OK and got > want:
                self.parse_bytes(ps.rbuf, got - want)
        else:
            self.parse_bytes(ps.rbuf, got)
        inbox_reading(NULL)
        self.account_batch()
        if load8(&self.closing):
            return
        self.wait_for_control()
        if self.stall_ns:
            if self.stall_ns >= STALL_REPORT:
                self.log(LOG_PRODUCER_STALLED, self.stall_ns, NULL, 0)
            self.pause(self.stall_ns)
            self.stall_ns = 0
        elif unlikely(self.transport.ended):
            self.resume_reading()

    cdef void parse_bytes(self, char *buf, size_t n) noexcept nogil:
        """Parse; what follows a punted verb is kept until the control plane has answered."""
        if self.parse(buf, n) != PARSE_PUNT:
            return
        self.parked = 1
        n -= self.consumed
        if n == 0:
            return
        self.pre = <char *> malloc(n)
        if self.pre == NULL:
            self.out_of_memory(READ_ERROR)
            return
        memcpy(self.pre, buf + self.consumed, n)
        self.pre_len = n
        self.pre_at = 0

    cdef void parse_kept(self) noexcept nogil:
        """Parse what was kept, which may stop at another punted verb."""
        cdef char *pre = self.pre
        if self.parse(pre + self.pre_at, self.pre_len - self.pre_at) == PARSE_PUNT:
            self.parked = 1
            self.pre_at += self.consumed
            if self.pre_at < self.pre_len:
                return
        self.pre = NULL
        free(pre)

    cdef void account_batch(self) noexcept nogil:
        if self.batch_msgs:
            bump64(&self.in_msgs, self.batch_msgs)
            bump64(&self.in_bytes, self.batch_bytes)
            bump64(&self.ps.in_msgs, self.batch_msgs)
            bump64(&self.ps.in_bytes, self.batch_bytes)
        if self.batch_msgs or self.batch_subs:
            storei64(&self.last_in, self.ps.now)
        self.batch_msgs = self.batch_bytes = self.batch_subs = 0

    # -- writing -------------------------------------------------------------------------------------------------

    cdef void mark_dirty(self) noexcept nogil:
        if not self.dirty:
            self.dirty = 1
            self.dirty_next = self.ps.dirty
            self.ps.dirty = <void *> self

    cdef void merge_remote(self) noexcept nogil:
        """Put what other threads have queued behind what we have; the lock is held."""
        store8(&self.has_remote, 0)
        outq_merge(&self.out, &self.remote, &self.ps.pool)

    cdef void take_remote(self) noexcept nogil:
        """What other threads have queued so far goes before what we queue now: who saw the answer to a publish may
        rely on its message being ahead of anything caused later."""
        pthread_mutex_lock(&self.lock)
        self.merge_remote()
        pthread_mutex_unlock(&self.lock)

    cdef void queue_outbound(self, const char *p, size_t n) noexcept nogil:
        """Queue protocol bytes for the peer, behind what is queued; flushed at the end of the batch."""
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

    cdef void send_ok(self) noexcept nogil:
        if self.trace:
            self.trace_line(TRACE_OUT, b"OK", 2, NULL, 0)
        self.queue_outbound(b"+OK\r\n", 5)

    cdef void send_err(self, const char *text) noexcept nogil:
        self.send_err_quoting(text, NULL, 0, NULL, NULL, 0)

    cdef void send_err_quoting(
        self, const char *text, const char *subject, size_t n, const char *more, const char *queue, size_t qn
    ) noexcept nogil:
        """-ERR 'text "subject" more "queue"'."""
        cdef const char *verb = b"-ERR '"
        cdef const char *end = b"'\r\n"
        cdef char *line = <char *> malloc(
            strlen(verb) + strlen(text) + quote_room(n) + (strlen(more) if more != NULL else 0) + quote_room(qn)
            + strlen(end))
        cdef char *p
        if line == NULL:
            self.out_of_memory(WRITE_ERROR)
            return
        p = put_text(put_text(line, verb), text)
        if subject != NULL:
            p = quote(p, subject, n)
        if more != NULL:
            p = put_text(p, more)
        if queue != NULL:
            p = quote(p, queue, qn)
        if self.trace:
            self.trace_line(TRACE_OUT, b"-ERR", 4, line + strlen(verb), p - line - strlen(verb))
        p = put_text(p, end)
        self.queue_outbound(line, p - line)
        free(line)

    cdef void flush_outbound(self) noexcept nogil:
        cdef long n
        cdef size_t left
        if self.fd < 0:
            return
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
        if left == 0:
            if self.want_write:
                self.want_write = 0
                self.set_interest(self.interest & ~<uint32_t> EPOLLOUT)
                timer_clear(&self.ps.timers, &self.write_timer)
            if self.draining:
                self.finish_close()
                return
        else:
            if not self.want_write:
                self.want_write = 1
                self.set_interest(self.interest | EPOLLOUT)
                self.deadline_mark = self.sent + left
                self.set_timer(&self.write_timer, self.write_deadline)
            elif self.sent >= self.deadline_mark and not self.draining:
                # Everything that was queued when the deadline was set has gone; what has come since gets its own.
                self.deadline_mark = self.sent + left
                self.set_timer(&self.write_timer, self.write_deadline)
        if load8(&self.gated) and self.out.bytes <= self.gate:
            self.release_stalled()

    cdef size_t unsent(self) noexcept nogil:
        """Bytes on their way to the socket; what waits for the end of a handshake is not."""
        return self.transport.type.unsent(self.transport, &self.out)

    cdef void outbound_over(self, Connection producer) noexcept nogil:
        """The queue is long: flush it now; if the socket takes no more, stall the producer or give up."""
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
        add64(&(<ServerState> self.server)._slow_consumers, 1)
        self.log(LOG_SLOW_PENDING, self.max_pending, NULL, 0)

    # -- stalled producers ---------------------------------------------------------------------------------------

    cdef void stall(self, Connection producer) noexcept nogil:
        """We are behind: `producer`, of the calling poller, is to pause when it has parsed what it has read."""
        store8(&self.gated, 1)
        if producer.kind != CLIENT or producer.stall_ns >= STALL_TOTAL:
            return
        if load8(&(<ServerState> self.server)._no_stall):
            return   # what comes next is dropped instead
        or64(&self.stall_waiters, <uint64_t> 1 << producer.ps.index)
        producer.stall_ns += STALL_MIN
        bump64(&producer.nstalls, 1)
        add64(&(<ServerState> producer.server)._stalls, 1)

    cdef void wait_for_control(self) noexcept nogil:
        """The control plane cannot keep up with what we make it log or answer: we are not read until it has, as
        nats-server's read loop logs and answers before it goes on."""
        if unlikely(inbox_owes(&self.source)) and not load8(&self.closing):
            if (<Inbox> self.inbox).park(&self.source):
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
        """We have caught up: the pollers that hold producers for us let them go on at the end of their batch."""
        cdef uint64_t waiters = exchange64(&self.stall_waiters, 0)
        cdef uint32_t i
        cdef PollState *ps
        store8(&self.gated, 0)
        static_assert(MAX_POLLERS <= 8 * sizeof(self.stall_waiters))
        for i in range(MAX_POLLERS):
            if waiters >> i & 1:
                ps = <PollState *> (<ServerState> self.server).pollers[i]
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
        self.ctl |= CTL_ABORT   # should it be closing already
        pthread_mutex_unlock(&self.lock)
        self.signal_owner()

    cdef void close_connection_nogil(self, uint32_t reason) noexcept nogil:
        """Owner only: stop reading and routing, flush what there is to say, close."""
        cdef bint skip_flush = (
            reason == READ_ERROR or reason == WRITE_ERROR or reason == SLOW_CONSUMER_PENDING_BYTES
            or reason == SLOW_CONSUMER_WRITE_DEADLINE or reason == TLS_HANDSHAKE_ERROR)
        cdef Transport *layer = self.transport
        if load8(&self.closing):
            return
        pthread_mutex_lock(&self.lock)
        store8(&self.closing, 1)
        self.refused = 1
        self.merge_remote()
        pthread_mutex_unlock(&self.lock)
        store32(&self.reason, reason)
        timer_clear(&self.ps.timers, &self.auth_timer)
        timer_clear(&self.ps.timers, &self.ping_timer)
        while layer != NULL:
            timer_clear(&self.ps.timers, &layer.timer)
            layer = layer.below
        self.unpause()
        self.note_subs()
        if self.has_many_subs() and not load8(&self.ps.hurry):
            self.leave_later()
        else:
            self.remove_all_subs()
        self.release_stalled()
        if not skip_flush and self.fd >= 0 and self.started and self.unsent():
            self.draining = 1
            self.want_write = 0
            self.set_interest(0)
            self.flush_outbound()
            return
        self.finish_close()

    cdef void leave_later(self) noexcept nogil:
        """Have the poller take out our subscriptions between its batches; until then they are in the sublist."""
        cdef PollState *ps = self.ps
        self.leaving = 1
        self.leaving_next = NULL
        if ps.leaving == NULL:
            ps.leaving = <void *> self
            eventfd_write(ps.evfd, 1)   # the batch may be one that Python runs
        else:
            set_leaving_next(<Connection> ps.leaving_last, <void *> self)
        ps.leaving_last = <void *> self

    cdef void left(self) noexcept nogil:
        self.leaving = 0
        if self.torn:
            self.post_closed()

    cdef void finish_close(self) noexcept nogil:
        cdef int _i
        if self.fd >= 0:
            epoll_ctl(self.ps.epfd, EPOLL_CTL_DEL, self.fd, NULL)
            while self.transport.below != NULL:
                self.transport.type.end(self.transport)
                self.transport = self.transport.below
                self.draining = 1   # a layer's last bytes may be an alert
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
        # What the parser holds stays: the message that overran our own queue is still being delivered to others.
        if self.started:
            add32(&self.ps.nclients, <uint32_t> -1)
        pthread_mutex_lock(&self.ps.lock)
        self.torn = 1
        pthread_mutex_unlock(&self.ps.lock)
        self.post_closed()

    cdef void post_closed(self) noexcept nogil:
        """Last of all, once no list of the poller names it: Python may drop the connection after this."""
        cdef bint now
        cdef Event *ev
        pthread_mutex_lock(&self.ps.lock)
        now = self.torn == 1 and not self.sig_queued and not self.dirty and not self.leaving
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
            (<Inbox> self.inbox).post(ev)

    # -- what core.client overrides ------------------------------------------------------------------

    cdef void remove_all_subs(self) noexcept nogil:
        pass

    cdef bint has_many_subs(self) noexcept nogil:
        return False

    cdef bint remove_some_subs(self) noexcept nogil:
        return False

    cdef void note_subs(self) noexcept nogil:
        pass


cdef void caught_up(void *owner) noexcept nogil:
    """Source.resume: the control loop."""
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


cdef void set_stall_next(Connection c, void *following) noexcept nogil:
    c.stall_next = following
