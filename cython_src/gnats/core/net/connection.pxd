"""A connection (the I/O half of client.go): its socket, outbound queue, timers, opening and closing.

It knows no protocol: its `session` speaks with the peer.

A connection belongs to one poller for life. Unless a field says otherwise, only that poller's thread, its *owner*,
touches it. Any thread may, under `lock`, append to `remote`, read the subscription table and leave a request in `ctl`;
then it signals the owner. Python's calls leave such requests.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport strlen

from gnats.core.net.connectionbase cimport ConnectionBase
from gnats.core.net.outbound cimport OutQueue
from gnats.core.net.pollstate cimport PollState
from gnats.core.net.transport cimport Transport
from gnats.core.runtime.inbox cimport Event
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.timers cimport Timer
from gnats.includes.pthread cimport pthread_mutex_t

# Reasons for which the data plane closes a connection (gnats.connection.closed_state.ClosedState).
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
    # requests to the owner, under `lock`; a session numbers its own, which on_control gets, from SESSION_CTL on
    CTL_START = 1
    CTL_RESUME = 2
    CTL_CLOSE = 4
    CTL_ABORT = 8
    CTL_GO_ON = 16            # the control plane has handled most of our events: read again
    SESSION_CTL = 32

cdef enum:
    # reasons for which a connection is not read; bits of Connection.paused
    STALLED = 1               # it publishes to a slow consumer: until stall_timer
    BEHIND = 2                # the control plane has too much of its work waiting: until CTL_GO_ON
    UNANSWERED = 4            # the session waits for the control plane's answer, until CTL_RESUME
    UNFINISHED = 8            # a turn was over before all that was read was handled; the session keeps the rest
    UNREAD = 16               # the transport has more input that has come (TransportType.more)

cdef enum:
    # kinds of timers; a session numbers its own from SESSION_TIMERS on
    T_WRITE, T_STALL, T_TRANSPORT, SESSION_TIMERS


cdef class Connection(ConnectionBase)


# Actions that permissions deny a peer.
cdef enum Denial:
    DENIED_PUBLISH              # to a subject
    DENIED_REPLY                # to publish with a reply subject
    DENIED_SUBSCRIPTION
    DENIED_FURTHER              # a subscription that it has: new permissions have removed it


# The functions of a session, which speaks one protocol with the peer. The connection calls them, and so does the code
# that all sessions share, always on the owner's thread. The session of one of the server's own subscribers (fd -1) has
# on_control, closing and the answers only.
cdef struct SessionType:
    # Start the session's timers: the transport is set up, and input follows.
    void (*begin)(Connection c) noexcept nogil
    # Return where the first bytes of the next read should go, and their number in n[0]; 0: no preference.
    char *(*wants)(Connection c, size_t *n) noexcept nogil
    # Handle a read: `direct` bytes are where wants() said, the n bytes that follow them at `buf`. When the turn is over
    # before their end, keep a copy of the rest and set UNFINISHED in `paused`.
    void (*feed)(Connection c, size_t direct, char *buf, size_t n) noexcept nogil
    # Do what other threads have requested of the session (bits from SESSION_CTL on); called after each signal, also
    # while the connection is closing.
    void (*on_control)(Connection c, uint32_t ctl) noexcept nogil
    # Go on with the bytes that were kept: the control plane has answered, or another turn has begun. Return whether
    # there were any.
    bint (*resume)(Connection c) noexcept nogil
    # Handle a timer of the session that has expired.
    void (*expired)(Connection c, Timer *t) noexcept nogil
    # The connection is closing: stop timers, fill in last_nsubs and last_subs, remove the subscriptions. True: there
    # are too many for one batch, and leave() removes them.
    bint (*closing)(Connection c) noexcept nogil
    # Remove some of the subscriptions, after a batch of the poller. False: none is left.
    bint (*leave)(Connection c) noexcept nogil
    # NULL, or of a link: queue the changes of interest that wait for the peer. A message must not leave before the
    # interest of those who may have caused it, so this is called for `all` of them before what other pollers have
    # queued joins `out`, and before a message of this poller does. Otherwise it stops above the gate, or after a turn,
    # and signals the connection then: return whether some are left until there is room for them.
    bint (*announce)(Connection c, bint all) noexcept nogil
    # -- answers: queue one for the peer, or nothing where the protocol has none --
    # The peer's message is accepted. Called only for a verbose peer (Subscriber.verbose).
    void (*send_ok)(Connection c) noexcept nogil
    # An error, a literal. The caller closes the connection next.
    void (*send_err)(Connection c, const char *text) noexcept nogil
    # Permissions deny something; `queue` and `sid` are a subscription's, NULL for other denials.
    void (*send_denied)(Connection c, Denial what, const Slice *subject, const Slice *queue,
                        const Slice *sid) noexcept nogil


cdef class Connection(ConnectionBase):
    cdef list keep                # objects that the borrowed pointers below need alive; the control plane's
    cdef PollState *ps
    cdef const SessionType *session
    cdef int fd                   # -1 for an internal client and after the close
    cdef uint32_t interest        # EPOLL* events that the socket is watched for
    cdef uint8_t watched          # the socket is in the epoll set
    cdef uint8_t closing          # the close has begun; atomic, the owner writes
    cdef uint32_t reason          # ClosedState, 0 while open; atomic, the owner writes
    cdef Transport *transport     # the first layer of the chain to the peer
    cdef Transport *layers        # all layers to free with the connection, linked by `owned`
    cdef Transport socket         # the last layer
    # started: the poller has it. torn: 1 once the socket is closed, 2 once EV_CLOSED is posted; written under ps.lock.
    # draining: closing, but queued bytes have yet to be sent.
    cdef uint8_t started, torn, draining
    cdef uint8_t admitted         # the session serves the peer: when it does not read, it counts as a slow consumer
    # outbound
    cdef OutQueue out
    cdef size_t max_pending       # bytes queued; beyond them the connection is a slow consumer and is closed
    cdef size_t gate              # bytes queued, three quarters of max_pending; beyond them producers are stalled
    cdef size_t flush_over        # bytes queued; beyond them a delivery flushes at once
    cdef uint64_t backlog         # bytes queued when the owner looked last; atomic, the owner writes, publishers read
    cdef uint64_t sent            # bytes that the socket has taken, as unsent() counts them
    # the write deadline that is set: the value that `sent` must reach, that from which it counts, and since when
    cdef uint64_t deadline_mark, deadline_from
    cdef int64_t deadline_set     # monotonic ns
    cdef uint32_t deadline_chunks  # queued when it was set, of a slow peer
    cdef int64_t write_deadline   # ns
    cdef uint8_t retries          # a peer that misses it is kept if it has read at all since it was set
    cdef uint8_t slow             # it has missed one, and has not caught up since; atomic, the owner writes
    cdef uint8_t interest_waits   # changes of interest are left, until there is room for them
    cdef uint8_t dirty, want_write   # in ps.dirty; the socket is full, wait for EPOLLOUT
    cdef uint64_t remote_seen     # ps.epoch when a delivery looked at `remote` last
    cdef uint8_t gated            # over the gate; atomic, any publisher's poller sets it, the owner clears it
    cdef uint64_t stall_waiters   # bit i: poller i has stalled producers for us; atomic
    cdef void *dirty_next         # in ps.dirty
    # the connection is closed, but SessionType.leave() has not removed all subscriptions yet
    cdef uint8_t leaving
    cdef void *leaving_next       # in ps.leaving
    # as a producer: ns for which slow consumers have asked it to stop reading, during the current read. Without
    # `may_stall` it is never stalled, and its messages are not dropped instead: a link carries those of many clients.
    cdef int64_t stall_ns
    cdef uint8_t may_stall
    cdef uint8_t paused           # STALLED | BEHIND | UNANSWERED | UNFINISHED | UNREAD
    cdef void *stall_next         # in ps.stalled
    cdef void *stall_prev
    cdef uint8_t waiting          # in ps.waiting, for another turn
    cdef void *waiting_next
    cdef Timer write_timer, stall_timer
    cdef int64_t start_time, last_in   # monotonic ns; last_in: the last message, subscription or PING (atomic), or 0
    # messages, and bytes of header and payload; times it was stalled, and kept as slow. Atomic, the owner writes
    cdef uint64_t in_msgs, in_bytes, out_msgs, out_bytes, nstalls, nslow
    # under lock: left by other threads for the owner
    cdef pthread_mutex_t lock
    cdef OutQueue remote
    cdef uint8_t has_remote       # `remote` is not empty; atomic, for a look without the lock
    cdef uint8_t refused          # append nothing more to `remote`
    cdef uint32_t ctl             # CTL_* requests
    cdef uint32_t ctl_reason      # ClosedState of the first CTL_CLOSE that gave one
    cdef uint64_t remote_msgs, remote_bytes   # queued by other pollers; not in out_msgs, out_bytes
    # under ps.lock
    cdef uint8_t sig_queued
    cdef void *sig_next
    # subscriptions at the close, for EV_CLOSED
    cdef uint64_t last_nsubs
    cdef char *last_subs          # see core.subjects.subtable.subtable_text
    cdef size_t last_subs_len
    cdef Event closed_event       # the EV_CLOSED; part of the connection, so that posting it needs no memory

    # -- for the poller --
    # Take the messages that other threads have queued, and do what those threads have requested.
    cdef void on_signal(self) noexcept nogil
    # Handle EPOLL* events of the socket.
    cdef void on_events(self, uint32_t events) noexcept nogil
    cdef void on_timer(self, Timer *t) noexcept nogil
    # Leave ps.waiting, whose first it is, and go on with what was read.
    cdef void take_turn(self) noexcept nogil
    # Send queued bytes until the socket takes no more; watch for EPOLLOUT when some are left.
    cdef void flush_outbound(self) noexcept nogil
    cdef size_t unsent(self) noexcept nogil
    # Go on with what was read, or watch for input again, unless it is still paused for another reason.
    cdef void resume_reading(self) noexcept nogil
    cdef void post_closed(self) noexcept nogil
    cdef void leave_later(self) noexcept nogil     # put it into ps.leaving
    cdef bint leave(self) noexcept nogil           # call SessionType.leave(); False: no subscription is left

    # Close with a ClosedState; what is queued is sent first unless the reason forbids. The owner; idempotent.
    cdef void close_connection_nogil(self, uint32_t reason) noexcept nogil
    # Owner: memory has run out for something that the peer relies on. Log it and close. One of the server's own clients
    # (fd -1) stays open, and loses what it was about to do.
    cdef void out_of_memory(self, uint32_t reason) noexcept nogil
    # As out_of_memory, on any thread; the lock is held, and the caller signals the owner.
    cdef void refuse_out_of_memory(self) noexcept nogil
    # As out_of_memory, on the control loop.
    cdef void close_without_memory(self)
    # Append nothing more and have the owner close. The lock is held; the caller signals the owner.
    cdef void refuse_more(self, uint32_t reason) noexcept nogil
    # Have the owner close in its next round, even while it drains: for places that cannot close at once.
    cdef void close_soon(self, uint32_t reason) noexcept nogil
    cdef void set_timer(self, Timer *t, int64_t wait) noexcept nogil   # `wait` in ns; without memory, closes soon
    cdef void finish_close(self) noexcept nogil    # close the socket now
    cdef void signal_owner(self) noexcept nogil
    cdef void set_interest(self, uint32_t events) noexcept nogil
    cdef void read_loop(self) noexcept nogil
    cdef void look_for_more(self) noexcept nogil   # set UNREAD if the transport has more input
    cdef void input_handled(self) noexcept nogil   # pause, if the input that was handled gives a reason
    cdef void begin(self) noexcept nogil           # watch the socket, and begin the transport or the session
    cdef void begin_session(self) noexcept nogil   # unless it is closing
    cdef void queue_outbound(self, const char *p, size_t n) noexcept nogil
    # Queue a line of a link that has nothing to do with messages: ahead of them, if many wait.
    cdef void queue_control(self, const char *text) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil      # have the end of the batch flush it
    cdef void merge_remote(self, OutQueue *taken) noexcept nogil
    cdef void take_remote(self) noexcept nogil
    cdef void outbound_over(self, Connection producer) noexcept nogil
    cdef void report_slow_consumer(self) noexcept nogil
    # Set one for the bytes from `start` (a value of `sent`) to the `left` ones that are queued.
    cdef void set_write_deadline(self, uint64_t start, size_t left) noexcept nogil
    cdef void miss_write_deadline(self) noexcept nogil
    cdef void recover(self) noexcept nogil   # a slow peer has read what a write deadline was set for
    cdef void stall(self, Connection producer) noexcept nogil
    cdef void pause(self, int64_t ns) noexcept nogil   # stop reading for so many ns
    cdef void unpause(self) noexcept nogil
    cdef void wait_for_turn(self) noexcept nogil       # join ps.waiting
    cdef void wait_for_control(self) noexcept nogil    # pause if too many of our events wait
    cdef void release_stalled(self) noexcept nogil


cdef inline void queue_text(Connection c, const char *text) noexcept nogil:
    """Queue a literal."""
    c.queue_outbound(text, strlen(text))
