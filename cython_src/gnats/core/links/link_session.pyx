"""The session of a link; see link_session.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, strlen

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.accounts.subscriptions cimport end_subscriptions, remove_all_subs
from gnats.core.links.link cimport (
    ANNOUNCE_ALL,
    ANNOUNCE_TURN,
    link_announce,
    link_end,
    link_free,
    link_remove_gone,
    link_sum,
    link_walk,
)
from gnats.core.links.remote_subs cimport end_hearing, free_heard, hear_again, subscribe_kept
from gnats.core.messages.message cimport SIZES_ROOM, Message
from gnats.core.messages.reserved cimport is_jetstream_ack, plain_reply
from gnats.core.net.connection cimport CTL_RESUME, READ_ERROR, WRITE_ERROR, Connection, Denial, SessionType
from gnats.core.net.log_records cimport (
    LOG_INTEREST_DIFFERS,
    LOG_INTEREST_REPAIRED,
    LOG_SENT_INTEREST,
    TRACE_IN,
    TRACE_OUT,
)
from gnats.core.net.outbound cimport outq_put
from gnats.core.net.pollstate cimport PollerBase, hand_over_first
from gnats.core.net.s2transport cimport s2_begin, s2_make, s2_set_uncompressed
from gnats.core.net.transport cimport Transport
from gnats.core.pings cimport (
    close_stale,
    pong_received,
    set_first_ping_timer,
    set_ping_limits,
    set_settling_timer,
)
from gnats.core.protocol.parser cimport PARSE_CLOSED, PARSE_OK, ParserHandlers
from gnats.core.routing.route cimport ROUTE_NO_MEMORY, route
from gnats.core.routing.tracing cimport TRACE_SKIP, init_msg_trace, may_be_traced, send_msg_trace, set_trace_dest
from gnats.core.runtime.inbox cimport EV_BEGUN, EV_CONNECT, EV_INFO, EV_PONG
from gnats.core.runtime.kinds cimport GATEWAY, LEAF
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.runtime.timers cimport Timer
from gnats.core.sessioninput cimport SessionInput, go_on, input_drop, punt
from gnats.core.subjects.interest_queue cimport InterestChange
from gnats.core.textsession cimport (
    T_PING,
    TextSession,
    share_session,
    share_verbs,
    session_expired,
    start_auth_timer,
    stop_timers,
)
from gnats.includes.atomics cimport bump64, load64, load8, store8, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text
from gnats.includes.times cimport duration_of

cdef extern from * nogil:
    """
    #define GNATS_DIGEST_INFO "{\\"digest\\":\\""
    #define GNATS_HEX "0123456789abcdef"
    """
    const char *DIGEST_INFO "GNATS_DIGEST_INFO"   # what a digest, AGAIN or DIFFERS follows in an INFO
    const char *HEX "GNATS_HEX"

cdef enum:
    ACK_DOTS = 8                    # dots of "$JS.ACK.<stream>.<consumer>. ... .<pending>"
    DIGEST_ROOM = 16                # digits of a digest

cdef const char *AGAIN = b"again"      # all interest follows, and then its digest
cdef const char *DIFFERS = b"differs"  # the answer to a digest that is not that of what has come


cdef class LinkSession(TextSession):
    """A connection to another server; see Connection. A subclass has its verbs, and says what it carries.

    With `negotiates`, send no PING before compress() or join(), and close the connection when neither is called within
    the time of all unanswered PINGs.
    """

    def __cinit__(
        self,
        int kind,
        int fd,
        uint64_t cid,
        PollerBase poller not None,
        ServerState state not None,
        AccountRegistry registry not None,
        *,
        bint negotiates=False,
        **_session,
    ):
        self.registry = registry
        self.unsettled = negotiates

    # -- called from Python --------------------------------------------------------------------------------------

    def compress(self, bytes greeting not None, *, bint solicited, bint uncompressed=False) -> None:
        """Both servers compress from now on: send `greeting`, an INFO, and go on with what follows the peer's INFO.

        A connection that was `solicited`, by this server, sends the greeting as it is, and nothing more before the peer
        has begun to compress. Otherwise the greeting is compressed, and so is what follows the peer's INFO. With
        `uncompressed`, write the format only, which costs the least. Post EV_PONG at each PONG from now on. Call it
        once, before join(). Raises MemoryError.
        """
        cdef Transport *layer
        self.keep.append(greeting)
        layer = s2_make(self, solicited, uncompressed)
        if layer == NULL:
            raise MemoryError
        pthread_mutex_lock(&self.lock)
        self.staged_s2 = layer
        self.staged_info.p = PyBytes_AS_STRING(greeting)
        self.staged_info.n = PyBytes_GET_SIZE(greeting)
        self.staged_solicited = solicited
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_COMPRESS | CTL_RESUME, 0)

    def set_uncompressed(self, bint uncompressed) -> None:
        """After compress(): write the format only from now on, or compress."""
        pthread_mutex_lock(&self.lock)
        self.staged_uncompressed = uncompressed
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_LEVEL, 0)

    def set_pings(self, *, double ping_interval, int ping_max) -> None:
        """Set the seconds between PINGs, and how many may be unanswered."""
        pthread_mutex_lock(&self.lock)
        self.staged_ping_interval = duration_of(ping_interval)
        self.staged_ping_max = ping_max
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_PINGS, 0)

    def snapshot(self) -> dict:
        """Return counters as all subscribers do, with `repairs`: how often interest was repaired."""
        found = TextSession.snapshot(self)
        found["repairs"] = load64(&self.repairs)
        return found

    # -- the session ---------------------------------------------------------------------------------------------

    cdef void take_link_requests(self, uint32_t ctl) noexcept nogil:
        if ctl & CTL_ACCEPTED:
            self.input.parser.auth_set = 0
            self.admitted = 1
        if ctl & CTL_COMPRESS and self.s2 == NULL and not load8(&self.closing):
            self.switch_to_s2()
        if ctl & CTL_LEVEL and self.s2 != NULL:
            pthread_mutex_lock(&self.lock)
            s2_set_uncompressed(self.s2, self.staged_uncompressed)
            pthread_mutex_unlock(&self.lock)
        if ctl & CTL_PINGS:
            self.change_pings()
        if link_remove_gone(self, &self.link) and self.tells_digests:
            self.tell_again()   # no lines say that interest in an account that is removed ends
        if load8(&self.link.came):
            self.take_kept()

    cdef void switch_to_s2(self) noexcept nogil:
        cdef SessionInput *input = &self.input
        cdef const char *kept = NULL
        cdef size_t n = 0
        self.s2 = self.staged_s2
        if self.staged_solicited:
            self.queue_outbound(self.staged_info.p, self.staged_info.n)
        if input.kept != NULL:
            kept = input.kept + input.kept_at
            n = input.kept_n - input.kept_at
        s2_begin(self, self.s2, kept, n)
        input_drop(input)
        if not self.staged_solicited:
            self.queue_outbound(self.staged_info.p, self.staged_info.n)
        self.settle()

    cdef void settle(self) noexcept nogil:
        if self.unsettled and not load8(&self.closing):
            self.unsettled = 0
            set_first_ping_timer(self, &self.pings)

    cdef void change_pings(self) noexcept nogil:
        cdef int64_t interval
        cdef int32_t most
        pthread_mutex_lock(&self.lock)
        interval = self.staged_ping_interval
        most = self.staged_ping_max
        pthread_mutex_unlock(&self.lock)
        if self.unsettled or (self.kind == LEAF and not self.joined):   # the timer is not for PINGs yet
            self.pings.interval = interval
            self.pings.max = most
        elif not load8(&self.closing):
            set_ping_limits(self, &self.pings, interval, most)

    cdef void announce_first(self) noexcept nogil:
        self.interest_waits = link_announce(self, &self.link, ANNOUNCE_TURN)
        if self.link.written:
            self.debugf(LOG_SENT_INTEREST, 0, NULL, 0)

    cdef bint queue_line(self, char *line, char *end) noexcept nogil:
        cdef bint written
        if self.trace:
            self.trace_line(TRACE_OUT, line, end - line, NULL, 0)
        end = put_text(end, b"\r\n")
        # Not queue_outbound: that puts messages of other pollers first, which the interest must precede.
        written = outq_put(&self.out, &self.ps.pool, line, end - line)
        self.mark_dirty()
        return written

    cdef void walk(
        self, bint (*write)(Subscriber owner, const InterestChange *change) noexcept nogil
    ) noexcept nogil:
        if not load8(&self.closing) and not link_walk(self, &self.link, write):
            self.close_soon(WRITE_ERROR)

    # -- digests of interest -------------------------------------------------------------------------------------

    cdef void keep_digests(self, bint tells, bint hears) noexcept nogil:
        self.tells_digests = tells
        self.hears_digests = hears
        self.reads_digests = tells or hears
        self.link.queue.digests = tells

    cdef void send_digest(self) noexcept nogil:
        cdef uint64_t sum
        cdef char[DIGEST_ROOM] text
        cdef uint32_t i
        # What permissions keep from the peer is not known.
        if not self.tells_digests or self.guard.permissions != NULL or not link_sum(&self.link, &sum):
            return
        for i in range(DIGEST_ROOM):
            text[i] = HEX[sum >> (60 - 4 * i) & 15]
        self.send_digest_info(text, DIGEST_ROOM)
        self.digest_told = 1

    cdef void send_digest_info(self, const char *value, size_t n) noexcept nogil:
        cdef char[FEW_BYTES] line
        cdef char *p = put_text(put_text(line, b"INFO "), DIGEST_INFO)
        if not self.queue_line(line, put_text(put(p, value, n), b'"}')):
            self.close_soon(WRITE_ERROR)

    cdef void tell_again(self) noexcept nogil:
        self.digest_told = 0
        self.send_digest_info(AGAIN, strlen(AGAIN))
        self.walk(self.link.write)
        if not load8(&self.closing):
            self.send_digest()

    cdef void compare(self, uint64_t sum) noexcept nogil:
        if self.heard.again:
            self.end_repair(sum)
        elif self.heard.full:
            self.hears_digests = 0   # what was dropped makes a difference
        elif self.guard.permissions != NULL or sum == self.heard.sum:
            self.differed = 0
        elif not self.differed:   # an account may be on its way from one connection to another
            self.differed = 1
        else:
            self.differed = 0
            self.send_digest_info(DIFFERS, strlen(DIFFERS))

    cdef void end_repair(self, uint64_t sum) noexcept nogil:
        cdef char[NUMBER_ROOM] stale
        cdef uint64_t n = end_hearing(self, &self.heard)
        if n or self.heard.missing:
            bump64(&self.repairs, 1)
            self.log(LOG_INTEREST_REPAIRED, <int64_t> self.heard.missing, stale, put_number(stale, n) - stale)
        if self.heard.full:
            self.hears_digests = 0
        elif sum != self.heard.sum and self.guard.permissions == NULL:
            self.hears_digests = 0   # to ask again would not end
            self.log(LOG_INTEREST_DIFFERS, 0, NULL, 0)

    cdef void take_kept(self) noexcept nogil:
        cdef Slice account
        store8(&self.link.came, 0)
        if self.heard.kept.n == 0:
            return
        account = self.only_account()
        if not subscribe_kept(self, self.registry, &self.heard, &account):
            self.out_of_memory(READ_ERROR)

    cdef Slice only_account(self) noexcept nogil:
        cdef Slice none
        none.p = NULL
        none.n = 0
        return none

    # -- verbs ---------------------------------------------------------------------------------------------------

    cdef void route_message(self, Message *m) noexcept nogil:
        if unlikely(m.hdr != 0) and may_be_traced(self, m):
            self.route_traced(m)
        elif route(m, (<Account> m.account).sublist) == ROUTE_NO_MEMORY:
            self.out_of_memory(READ_ERROR)

    cdef void route_traced(self, Message *m) noexcept nogil:
        cdef char[SIZES_ROOM] sizes
        cdef char *changed = NULL
        cdef bint disable = False
        if init_msg_trace(self, m, &disable) == TRACE_SKIP:
            return
        if disable:
            changed = set_trace_dest(m, NULL, sizes)
        if route(m, (<Account> m.account).sublist) == ROUTE_NO_MEMORY:
            self.out_of_memory(READ_ERROR)
        free(changed)
        if m.trace != NULL:
            send_msg_trace(self, m)

    cdef int process_connect(self, char *arg, size_t n) noexcept nogil:
        self.connect_has_come()
        return punt(self, EV_CONNECT, arg, n)

    cdef int process_info(self, char *arg, size_t n) noexcept nogil:
        """Digests do not wait for the control plane, for which reading would stop."""
        cdef size_t at = strlen(DIGEST_INFO)
        cdef uint64_t sum
        if not self.reads_digests or n < at or memcmp(arg, DIGEST_INFO, at):
            if self.kind == GATEWAY and self.joined:
                return self.post_info(arg, n)
            return punt(self, EV_INFO, arg, n)
        arg += at
        n -= at + min(n - at, strlen(b'"}'))
        if self.trace:
            self.trace_line(TRACE_IN, b"INFO", strlen(b"INFO"), arg, n)
        if is_text(arg, n, DIFFERS):
            if self.digest_told:
                self.tell_again()
        elif is_text(arg, n, AGAIN):
            if self.hears_digests:
                hear_again(&self.heard)
        elif self.hears_digests and read_digest(arg, n, &sum):
            self.compare(sum)
        return go_on(self)

    cdef int post_info(self, char *arg, size_t n) noexcept nogil:
        """Post an INFO for which reading goes on: a gateway sends two for each of its accounts, and PINGs behind them.
        """
        hand_over_first(self.ps)
        if not self.inbox.post_data(EV_INFO, <void *> self, &self.source, 0, 0, arg, n):
            self.out_of_memory(READ_ERROR)
            return PARSE_CLOSED
        return go_on(self)

    cdef int process_ping(self) noexcept nogil:
        if self.tells_digests:
            self.interest_waits = link_announce(self, &self.link, ANNOUNCE_TURN)
            self.send_digest()
        return TextSession.process_ping(self)

    cdef int process_pong(self) noexcept nogil:
        cdef bint awaited = self.pings.out > 0
        pong_received(self, &self.pings)
        if self.measured or (self.s2 != NULL and awaited):
            self.measured = 0
            self.inbox.post_data(EV_PONG, <void *> self, &self.source, 0, 0, NULL, 0)
        return go_on(self)


cdef inline bint is_text(const char *p, size_t n, const char *text) noexcept nogil:
    return n == strlen(text) and memcmp(p, text, n) == 0


cdef bint read_digest(const char *p, size_t n, uint64_t *sum) noexcept nogil:
    """Return whether it is a sum, and the sum."""
    cdef const char *digit
    cdef size_t i
    sum[0] = 0
    for i in range(n):
        digit = <const char *> memchr(HEX, p[i], strlen(HEX))
        if digit == NULL:
            return False
        sum[0] = sum[0] << 4 | <uint64_t> (digit - HEX)
    return n == DIGEST_ROOM


cdef void link_session_free(LinkSession c) noexcept nogil:
    c.started = 0       # it is in no batch
    remove_all_subs(c)
    link_end(&c.link)
    link_free(&c.link)
    free_heard(&c.heard)


cdef void show_subject_of_reply(Message *m) noexcept nogil:
    cdef uint32_t dots = 0
    cdef size_t i
    cdef Slice reply = plain_reply(&m.reply)
    if reply.p == NULL or reply.p[0] != c'$' or not is_jetstream_ack(&reply):
        return
    if memchr(reply.p, c'@', reply.n) == NULL:
        return
    for i in range(reply.n):
        if reply.p[i] == c'.':
            dots += 1
        elif reply.p[i] == c'@' and dots >= ACK_DOTS:
            if i + 1 < reply.n:
                m.shown.p = reply.p + i + 1
                m.shown.n = reply.n - i - 1
                m.reply.n -= reply.n - i
            return


# -- the session's functions: the connection calls them ----------------------------------------------------------------

cdef void begin(Connection c) noexcept nogil:
    c.inbox.post_data(EV_BEGUN, <void *> c, &c.source, 0, 0, NULL, 0)
    start_auth_timer(<LinkSession> c)
    if (<LinkSession> c).unsettled:
        set_settling_timer(<LinkSession> c, &(<LinkSession> c).pings)
    else:
        set_first_ping_timer(<LinkSession> c, &(<LinkSession> c).pings)


cdef void expired(Connection c, Timer *t) noexcept nogil:
    if t.kind == T_PING and (<LinkSession> c).unsettled:
        close_stale(<LinkSession> c)
    else:
        session_expired(c, t)


# Permissions of a link are this server's: the peer is told nothing.
cdef void send_denied(
    Connection c, Denial what, const Slice *subject, const Slice *queue, const Slice *sid
) noexcept nogil:
    pass


cdef bint announce(Connection c, bint all) noexcept nogil:
    return link_announce(<LinkSession> c, &(<LinkSession> c).link, ANNOUNCE_ALL if all else ANNOUNCE_TURN)


cdef bint closing(Connection c) noexcept nogil:
    stop_timers(<LinkSession> c)
    link_end(&(<LinkSession> c).link)
    return end_subscriptions(<LinkSession> c)


cdef void share_link_session(SessionType *session) noexcept nogil:
    share_session(session)
    session.begin = begin
    session.expired = expired
    session.announce = announce
    session.send_denied = send_denied
    session.closing = closing


# -- the parser's handlers ---------------------------------------------------------------------------------------------

# A+ and A-, from servers before 2.0.
cdef int process_account_sub(void *owner, char *arg, size_t n, bint add) noexcept nogil:
    return PARSE_OK


cdef int process_connect(void *owner, char *arg, size_t n) noexcept nogil:
    return (<LinkSession> owner).process_connect(arg, n)


cdef int process_info(void *owner, char *arg, size_t n) noexcept nogil:
    return (<LinkSession> owner).process_info(arg, n)


cdef int process_pong(void *owner) noexcept nogil:
    return (<LinkSession> owner).process_pong()


# Asked of pedantic clients only.
cdef int process_invalid_publish_subject(void *owner) noexcept nogil:
    return PARSE_OK


cdef void share_link_verbs(ParserHandlers *verbs) noexcept nogil:
    share_verbs(verbs)
    verbs.process_account_sub = process_account_sub
    verbs.process_connect = process_connect
    verbs.process_info = process_info
    verbs.process_pong = process_pong
    verbs.process_invalid_publish_subject = process_invalid_publish_subject
