"""A connection (the I/O half of client.go): its socket, outbound queue, timers, opening and closing. It knows no
protocol: what is at its other end is its session.

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
    UNANSWERED = 4            # the session waits for the control plane's answer, until CTL_RESUME

cdef enum:
    # kinds of timers; those of sessions are at SESSION_TIMERS and above
    T_WRITE, T_STALL, T_TRANSPORT, SESSION_TIMERS


cdef class Connection(Recorder)


# What is at the other end of a connection of some kind: the calls of a connection, all by its owner.
cdef struct Session:
    # The peer may speak from now on.
    void (*begin)(Connection c) noexcept nogil
    # Where the first bytes of the next read should go, and how many in n[0]; 0: anywhere.
    char *(*wants)(Connection c, size_t *n) noexcept nogil
    # Take what was read: `direct` bytes went to where wants() said, n others are at `buf`.
    void (*feed)(Connection c, size_t direct, char *buf, size_t n) noexcept nogil
    # Do what other threads have asked for, CTL_* bits; also when the connection is closing.
    void (*on_control)(Connection c, uint32_t ctl) noexcept nogil
    # The control plane has answered: take what was kept meanwhile. Was there something?
    bint (*resume)(Connection c) noexcept nogil
    # One of its timers has expired.
    void (*expired)(Connection c, Timer *t) noexcept nogil
    # The connection is closing: stop timers, note what EV_CLOSED tells, and stop subscribing. True: there is so much
    # that leave() must be called until it is done.
    bint (*closing)(Connection c) noexcept nogil
    # Undo some of what is subscribed, in a batch of the poller; False: nothing is left.
    bint (*leave)(Connection c) noexcept nogil


cdef class Connection(Recorder):
    cdef list keep                # what the borrowed pointers below need alive; the control plane's
    cdef PollState *ps
    cdef const Session *session
    cdef int fd                   # -1 for an internal client and after the close
    cdef uint32_t interest        # what epoll watches the socket for
    cdef uint8_t watched          # it is in the epoll set
    cdef uint8_t closing          # atomic
    cdef uint32_t reason          # ClosedState, 0 while open; atomic
    cdef Transport *transport     # the first layer of the chain to the peer
    cdef Transport *layers        # all that are to be freed with us, through `owned`
    cdef Transport socket         # the last layer
    cdef uint8_t started, torn, draining
    cdef uint8_t awaits_connect   # who the peer is has yet to be shown
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
    # closed, and Session.leave() is not done
    cdef uint8_t leaving
    cdef void *leaving_next       # in ps.leaving
    # as a producer: ns to pause reading, asked for by slow consumers during this read
    cdef int64_t stall_ns
    cdef uint8_t paused
    cdef void *stall_next         # in ps.stalled
    cdef void *stall_prev
    cdef Timer write_timer, stall_timer
    cdef int64_t start_time, last_in
    # counters; atomic with one writer
    cdef uint64_t in_msgs, in_bytes, out_msgs, out_bytes, nstalls
    # under lock: what other threads leave for the owner
    cdef pthread_mutex_t lock
    cdef OutQueue remote
    cdef uint8_t has_remote       # atomic, for a look without the lock: remote is not empty
    cdef uint8_t refused          # nothing may be appended any more
    cdef uint32_t ctl
    cdef uint32_t ctl_reason
    cdef uint64_t remote_msgs, remote_bytes
    # under ps.lock
    cdef uint8_t sig_queued
    cdef void *sig_next
    # what there was at the close, for EV_CLOSED
    cdef uint64_t last_nsubs
    cdef char *last_subs          # see core.subtable.subtable_text
    cdef size_t last_subs_len
    cdef Event closed_event       # EV_CLOSED, which must not be lost for want of memory

    # -- for the poller (owner thread) --
    cdef void on_signal(self) noexcept nogil
    cdef void on_events(self, uint32_t events) noexcept nogil
    cdef void on_timer(self, Timer *t) noexcept nogil
    cdef void flush_outbound(self) noexcept nogil
    cdef size_t unsent(self) noexcept nogil
    cdef void resume_reading(self) noexcept nogil
    cdef void post_closed(self) noexcept nogil
    cdef void leave_later(self) noexcept nogil     # put us into ps.leaving
    cdef bint leave(self) noexcept nogil           # undo some of what is subscribed; False: done

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
    cdef void begin(self) noexcept nogil
    cdef void begin_session(self) noexcept nogil   # unless we have been closed
    cdef void queue_outbound(self, const char *p, size_t n) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil
    cdef void merge_remote(self) noexcept nogil
    cdef void take_remote(self) noexcept nogil
    cdef void outbound_over(self, Connection producer) noexcept nogil
    cdef void report_slow_consumer(self) noexcept nogil
    cdef void stall(self, Connection producer) noexcept nogil
    cdef void pause(self, int64_t ns) noexcept nogil
    cdef void unpause(self) noexcept nogil
    cdef void wait_for_control(self) noexcept nogil    # if we have caused more than it may have waiting
    cdef void release_stalled(self) noexcept nogil
