"""A session in NATS' text protocol; see textsession.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport strlen

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport remove_some_subs
from gnats.core.net.connection cimport (
    AUTHENTICATION_TIMEOUT,
    AUTHENTICATION_VIOLATION,
    CTL_CLOSE,
    CTL_RESUME,
    CTL_START,
    MAX_CONTROL_LINE_EXCEEDED,
    MAX_PAYLOAD_EXCEEDED,
    PARSE_ERROR,
    PROTOCOL_VIOLATION,
    READ_ERROR,
    Connection,
    SessionType,
    queue_text,
)
from gnats.core.net.connectionbase cimport trace_verb
from gnats.core.net.log_records cimport LOG_AUTH_TIMEOUT, LOG_AUTH_VIOLATION, LOG_CLIENT_ERROR, TRACE_IN, TRACE_OUT
from gnats.core.net.pollstate cimport PollerBase
from gnats.core.pings cimport pong_received, process_ping_timer
from gnats.core.protocol.answers cimport send_denied, send_err, send_ok
from gnats.core.protocol.parser cimport (
    BAD_OPERATION,
    OVER_MAX_CONTROL_LINE,
    OVER_MAX_PAYLOAD,
    PARSER_OUT_OF_MEMORY,
    PARSE_CLOSED,
    PARSE_OK,
    ParserHandlers,
    parser_wants,
)
from gnats.core.runtime.const cimport DEFAULT_PING_INTERVAL, DEFAULT_PING_MAX_OUT
from gnats.core.runtime.inbox cimport EV_INFO
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.runtime.state cimport ServerState
from gnats.core.runtime.timers cimport Timer, timer_clear
from gnats.core.sessioninput cimport go_on, input_feed, input_free, input_resume, punt, turn_is_over
from gnats.includes.atomics cimport storei64
from gnats.includes.text cimport NUMBER_ROOM, put_number
from gnats.includes.times cimport duration_of


cdef class TextSession(Subscriber):
    """A connection whose peer speaks NATS' text protocol; see Connection.

    A subclass sets up `input` with its verbs. `ping_interval` is in seconds.
    """

    def __cinit__(
        self,
        int kind,
        int fd,
        uint64_t cid,
        PollerBase poller not None,
        ServerState state not None,
        *_session_args,
        double ping_interval=DEFAULT_PING_INTERVAL,
        int ping_max=DEFAULT_PING_MAX_OUT,
        **_session,
    ):
        self.pings.interval = duration_of(ping_interval)
        self.pings.max = ping_max
        self.auth_timer.owner = self.pings.timer.owner = <void *> self
        self.auth_timer.kind = T_AUTH
        self.pings.timer.kind = T_PING

    def __dealloc__(self):
        input_free(&self.input)

    # -- called from Python --------------------------------------------------------------------------------------

    def start(self, bytes greeting not None, *, bint expect_connect, double auth_timeout=0.0) -> None:
        """Hand the connection to its poller: send `greeting`, then read.

        With `expect_connect`, a verb before CONNECT is an authorization violation, and the connection is closed when
        no CONNECT has come after `auth_timeout` seconds (0: never).
        """
        self.input.parser.auth_set = expect_connect
        self.admitted = not expect_connect
        self.auth_timeout = duration_of(auth_timeout) if expect_connect else 0
        self.append_remote(greeting)
        self.request(CTL_START, 0)

    def refuse(self, bytes greeting not None, int reason, str err not None) -> None:
        """Send `greeting` and `-ERR 'err'`, and close without reading anything."""
        self.append_remote(greeting + f"-ERR '{err}'\r\n".encode())
        self.request(CTL_START | CTL_CLOSE, reason)

    def resume(self) -> None:
        """Go on parsing after a punted INFO has been answered."""
        self.request(CTL_RESUME, 0)

    def close_connection(self, int reason, str err=None) -> None:
        """Send `-ERR 'err'` if given and close; EV_CLOSED follows once the poller has done it. Idempotent."""
        if err is not None:
            self.append_remote(f"-ERR '{err}'\r\n".encode())
        self.request(CTL_CLOSE, reason)

    # -- verbs ---------------------------------------------------------------------------------------------------

    cdef void connect_has_come(self) noexcept nogil:
        timer_clear(&self.ps.timers, &self.auth_timer)

    cdef int process_ping(self) noexcept nogil:
        if self.trace:
            trace_verb(self, TRACE_IN, b"PING")
            trace_verb(self, TRACE_OUT, b"PONG")
        if self.kind == CLIENT:
            queue_text(self, b"PONG\r\n")   # behind all messages that were queued before: clients wait for that
        else:
            self.queue_control(b"PONG\r\n")
        storei64(&self.last_in, self.ps.now)
        return go_on(self)

    cdef int process_err(self, char *arg, size_t n) noexcept nogil:
        self.log(LOG_CLIENT_ERROR, 0, arg, n)
        self.close_connection_nogil(PARSE_ERROR)
        return PARSE_CLOSED

    cdef int auth_violation(self) noexcept nogil:
        self.log(LOG_AUTH_VIOLATION, 0, NULL, 0)
        send_err(self, b"Authorization Violation")
        self.close_connection_nogil(AUTHENTICATION_VIOLATION)
        return PARSE_CLOSED

    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        cdef char[NUMBER_ROOM] limit
        if code == PARSER_OUT_OF_MEMORY:
            self.out_of_memory(READ_ERROR)
            return PARSE_CLOSED
        if code == OVER_MAX_PAYLOAD:
            n = put_number(limit, self.input.parser.max_payload) - limit   # not -1: there is a limit
            data = limit
        if code == BAD_OPERATION:
            send_err(self, b"Unknown Protocol Operation")
        elif code == OVER_MAX_CONTROL_LINE:
            send_err(self, b"maximum control line exceeded")
        self.log(code, b, data, n if n < 512 else 512)
        if code == OVER_MAX_CONTROL_LINE:
            self.close_connection_nogil(MAX_CONTROL_LINE_EXCEEDED)
        elif code == OVER_MAX_PAYLOAD:
            send_err(self, b"Maximum Payload Violation")
            self.close_connection_nogil(MAX_PAYLOAD_EXCEEDED)
        self.close_connection_nogil(PROTOCOL_VIOLATION)
        return PARSE_CLOSED


cdef void start_auth_timer(TextSession c) noexcept nogil:
    if c.auth_timeout > 0:
        c.set_timer(&c.auth_timer, c.auth_timeout)


cdef void stop_timers(TextSession c) noexcept nogil:
    timer_clear(&c.ps.timers, &c.auth_timer)
    timer_clear(&c.ps.timers, &c.pings.timer)


# -- the session's functions: the connection calls them ----------------------------------------------------------------

cdef char *wants(Connection c, size_t *n) noexcept nogil:
    return parser_wants(&(<TextSession> c).input.parser, n)


cdef void feed(Connection c, size_t direct, char *buf, size_t n) noexcept nogil:
    input_feed(<TextSession> c, &(<TextSession> c).input, direct, buf, n)


cdef bint resume(Connection c) noexcept nogil:
    return input_resume(<TextSession> c, &(<TextSession> c).input)


cdef void session_expired(Connection c, Timer *t) noexcept nogil:
    if t.kind == T_PING:
        process_ping_timer(<TextSession> c, &(<TextSession> c).pings)
        return
    send_err(c, b"Authentication Timeout")
    c.debugf(LOG_AUTH_TIMEOUT, 0, NULL, 0)
    c.close_connection_nogil(AUTHENTICATION_TIMEOUT)


cdef bint leave(Connection c) noexcept nogil:
    return remove_some_subs(<TextSession> c)


cdef void share_session(SessionType *session) noexcept nogil:
    session.wants = wants
    session.feed = feed
    session.resume = resume
    session.expired = session_expired
    session.leave = leave
    session.send_ok = send_ok
    session.send_err = send_err
    session.send_denied = send_denied


# -- the parser's handlers ---------------------------------------------------------------------------------------------

cdef int process_ping(void *owner) noexcept nogil:
    return (<TextSession> owner).process_ping()


cdef int process_pong(void *owner) noexcept nogil:
    pong_received(<TextSession> owner, &(<TextSession> owner).pings)
    return PARSE_OK


cdef int process_info(void *owner, char *arg, size_t n) noexcept nogil:
    return punt(<TextSession> owner, EV_INFO, arg, n)


cdef int process_err(void *owner, char *arg, size_t n) noexcept nogil:
    return (<TextSession> owner).process_err(arg, n)


cdef int auth_violation(void *owner) noexcept nogil:
    return (<TextSession> owner).auth_violation()


cdef int violation(void *owner, int code, int64_t b, const char *data, size_t n) noexcept nogil:
    return (<TextSession> owner).violation(code, b, data, n)


cdef bint turn_over(void *owner) noexcept nogil:
    return turn_is_over(<TextSession> owner)


cdef void trace_in_op(void *owner, const char *op, const char *arg, size_t n) noexcept nogil:
    (<TextSession> owner).trace_line(TRACE_IN, op, strlen(op), arg, n)


cdef void share_verbs(ParserHandlers *verbs) noexcept nogil:
    verbs.process_ping = process_ping
    verbs.process_pong = process_pong
    verbs.process_info = process_info
    verbs.process_err = process_err
    verbs.auth_violation = auth_violation
    verbs.violation = violation
    verbs.turn_over = turn_over
    verbs.trace_in_op = trace_in_op
