"""A connection (the I/O half of client.go): its socket, outbound queue, timers, opening and closing.

A connection belongs to one poller for life. Unless a field says otherwise only that poller's thread, its *owner*,
touches it. Any thread may, under `lock`, append to `remote`, read the subscription table and leave a request in `ctl`;
it then signals the owner. Python's calls are such requests.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.inbox cimport Event
from gnats.core.outbound cimport OutQueue
from gnats.core.pollstate cimport PollState
from gnats.core.records cimport Recorder
from gnats.core.timers cimport Timer
from gnats.core.transport cimport Transport
from gnats.includes.pthread cimport pthread_mutex_t

# Reasons a connection closes for by the data plane's decision (gnats.reasons.ClosedState).
cdef enum:
    CLIENT_CLOSED = 1
    AUTHENTICATION_TIMEOUT = 2
    AUTHENTICATION_VIOLATION = 3
    TLS_HANDSHAKE_ERROR = 4
    SLOW_CONSUMER_PENDING_BYTES = 5
    SLOW_CONSUMER_WRITE_DEADLINE = 6
    WRITE_ERROR = 7
    READ_ERROR = 8
    PARSE_ERROR = 9
    STALE_CONNECTION = 10
    PROTOCOL_VIOLATION = 11
    MAX_CONNECTIONS_EXCEEDED = 15
    MAX_PAYLOAD_EXCEEDED = 16
    MAX_CONTROL_LINE_EXCEEDED = 17

cdef enum:
    # requests to the owner, under `lock`
    CTL_START = 1
    CTL_CONNECTED = 2
    CTL_RESUME = 4
    CTL_CLOSE = 8
    CTL_ABORT = 16
    CTL_PERMISSIONS = 32
    CTL_LIMITS = 64
    CTL_IMPORTS = 128
    CTL_GO_ON = 256           # the control plane has caught up with us

cdef enum:
    # why a connection is not read, in Connection.paused
    STALLED = 1               # for a consumer, until stall_timer
    BEHIND = 2                # the control plane is, until CTL_GO_ON

cdef enum:
    T_AUTH, T_PING, T_WRITE, T_STALL, T_TRANSPORT


# What a CONNECT settled, staged by the control plane for the owner.
cdef struct ConnectOptions:
    uint8_t echo, verbose, pedantic, headers, no_responders, protocol
    int32_t max_subs, max_payload


# What a reload may change on a live connection; -1 no limit.
cdef struct Limits:
    int32_t max_control_line, max_payload, max_subs, ping_max
    int64_t ping_interval    # ns


cdef class Connection(Recorder):
    cdef list keep                # what the borrowed pointers below need alive; the control plane's
    cdef PollState *ps
    cdef void *account            # borrowed core.account.Account; set before start and by connected()
    cdef int fd                   # -1 for an internal client and after the close
    cdef uint32_t interest        # what epoll watches the socket for
    cdef uint8_t watched          # it is in the epoll set
    cdef uint32_t reason          # ClosedState, 0 while open; atomic
    cdef Transport *transport     # the first layer of the chain to the peer
    cdef Transport *layers        # all that are to be freed with us, through `owned`
    cdef Transport socket         # the last layer
    # options
    cdef ConnectOptions opts
    cdef uint8_t connect_received, parked, started, torn, draining
    cdef uint8_t first_pong_sent  # atomic
    cdef int32_t max_subs
    cdef uint64_t nsubs           # subscriptions; atomic
    # outbound
    cdef OutQueue out
    cdef size_t max_pending       # bytes; over this the connection is a slow consumer
    cdef size_t gate              # three quarters of it: producers are stalled
    cdef size_t flush_over        # queue length at which a delivery flushes in place
    cdef uint64_t backlog         # bytes in `out` at the end of the last batch; atomic, for other threads
    cdef uint64_t sent            # bytes given to the kernel so far
    cdef uint64_t deadline_mark   # `sent` that must be reached before the write deadline
    cdef int64_t write_deadline   # ns
    cdef uint8_t dirty, want_write
    cdef uint64_t remote_seen     # ps.reads when remote was looked at last
    cdef uint8_t gated            # over the gate; atomic
    cdef uint64_t stall_waiters   # pollers with producers stalled for us, a bit each; atomic
    cdef void *dirty_next
    # closed with many subscriptions: those that are left are still to be taken out
    cdef uint8_t leaving
    cdef uint32_t leaving_at      # where its tables are looked at next
    cdef void *leaving_next       # in ps.leaving
    # as a producer: ns to pause reading, asked for by slow consumers during this read
    cdef int64_t stall_ns
    cdef uint8_t paused
    cdef void *stall_next         # in ps.stalled
    cdef void *stall_prev
    # bytes read but not parsed because a punted verb came before them
    cdef char *pre
    cdef size_t pre_len, pre_at
    # timers
    cdef Timer auth_timer, ping_timer, write_timer, stall_timer
    cdef int64_t ping_interval, auth_timeout
    cdef int32_t ping_max, ping_out
    cdef int64_t start_time, rtt_start, last_in
    cdef int64_t rtt              # ns; atomic
    # counters; atomic with one writer
    cdef uint64_t in_msgs, in_bytes, out_msgs, out_bytes, nstalls
    cdef uint64_t batch_msgs, batch_bytes, batch_subs
    # under lock: what other threads leave for the owner
    cdef pthread_mutex_t lock
    cdef OutQueue remote
    cdef uint8_t has_remote       # atomic, for a look without the lock: remote is not empty
    cdef uint8_t refused          # nothing may be appended any more
    cdef uint32_t ctl
    cdef uint32_t ctl_reason
    cdef ConnectOptions staged
    cdef Limits staged_limits
    cdef void *staged_account
    cdef char *connect_info       # INFO for after the first PONG
    cdef size_t connect_info_len
    cdef uint64_t remote_msgs, remote_bytes
    # under ps.lock
    cdef uint8_t sig_queued
    cdef void *sig_next
    # what there was at the close, for EV_CLOSED
    cdef uint64_t last_nsubs
    cdef char *last_subs          # see subtable_text
    cdef size_t last_subs_len
    cdef Event closed_event       # EV_CLOSED, which must not be lost for want of memory

    # -- for the poller (owner thread) --
    cdef void on_signal(self) noexcept nogil
    cdef void on_control(self, uint32_t ctl) noexcept nogil    # CTL_CONNECTED and what deliveries left
    cdef void on_events(self, uint32_t events) noexcept nogil
    cdef void on_timer(self, Timer *t) noexcept nogil
    cdef void flush_outbound(self) noexcept nogil
    cdef size_t unsent(self) noexcept nogil
    cdef void resume_reading(self) noexcept nogil
    cdef void post_closed(self) noexcept nogil
    cdef void leave_later(self) noexcept nogil     # put us into ps.leaving
    cdef void left(self) noexcept nogil            # ps.leaving names us no more

    cdef void close_connection_nogil(self, uint32_t reason) noexcept nogil
    # The owner has run out of memory in the middle of something that the peer relies on: log it and close. One of the
    # server's own clients stays; what it was about to do is lost.
    cdef void out_of_memory(self, uint32_t reason) noexcept nogil
    # As out_of_memory, of any thread that holds the lock.
    cdef void refuse_out_of_memory(self) noexcept nogil
    cdef void close_without_memory(self)           # as that, for what Python calls
    # Have the owner close us; the lock is held.
    cdef void refuse_more(self, uint32_t reason) noexcept nogil
    # The owner, from where it cannot close at once; a close that waits for the peer to read ends.
    cdef void close_soon(self, uint32_t reason) noexcept nogil
    cdef void set_timer(self, Timer *t, int64_t wait) noexcept nogil   # ns; closes soon when that cannot be done
    cdef void finish_close(self) noexcept nogil
    cdef void signal_owner(self) noexcept nogil
    cdef void set_interest(self, uint32_t events) noexcept nogil
    cdef void read_loop(self) noexcept nogil
    cdef void parse_bytes(self, char *buf, size_t n) noexcept nogil
    cdef void parse_kept(self) noexcept nogil
    cdef void account_batch(self) noexcept nogil
    cdef void apply_limits(self, const Limits *limits) noexcept nogil
    cdef void begin(self) noexcept nogil
    cdef void begin_protocol(self) noexcept nogil
    cdef void queue_outbound(self, const char *p, size_t n) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil
    cdef void merge_remote(self) noexcept nogil
    cdef void take_remote(self) noexcept nogil
    cdef void send_err(self, const char *text) noexcept nogil
    cdef void send_err_quoting(self, const char *text, const char *subject, size_t n,
                               const char *more, const char *queue, size_t qn) noexcept nogil
    cdef void send_ok(self) noexcept nogil
    cdef void outbound_over(self, Connection producer) noexcept nogil
    cdef void report_slow_consumer(self) noexcept nogil
    cdef void stall(self, Connection producer) noexcept nogil
    cdef void pause(self, int64_t ns) noexcept nogil
    cdef void unpause(self) noexcept nogil
    cdef void wait_for_control(self) noexcept nogil    # if we have caused more than it may have waiting
    cdef void release_stalled(self) noexcept nogil
    cdef void process_ping_timer(self) noexcept nogil
    cdef void set_first_ping_timer(self) noexcept nogil
    cdef void remove_all_subs(self) noexcept nogil
    cdef bint has_many_subs(self) noexcept nogil   # too many to be taken out in one batch, with others waiting
    # Take some out, in a batch of our poller; False: there are none left. Only once we are closed.
    cdef bint remove_some_subs(self) noexcept nogil
    cdef void note_subs(self) noexcept nogil       # into last_nsubs and last_subs
