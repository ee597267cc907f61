"""The session of a gateway; see gateway_session.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memmove, strlen

from gnats.core.accounts.account cimport Account, count_received
from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.links.audience cimport note_for_gateway
from gnats.core.links.link cimport ANNOUNCE_READY, link_announce, link_begin, link_init
from gnats.core.links.link_session cimport (
    CTL_ACCEPTED,
    CTL_JOINED,
    FEW_BYTES,
    MOST_INTEREST,
    LinkSession,
    link_session_free,
    share_link_session,
    share_link_verbs,
    show_deliver_subject,
)
from gnats.core.links.remote_subs cimport (
    REMOTE_SUB_BAD_ARGS,
    REMOTE_SUB_NO_MEMORY,
    RemoteInterest,
    RemoteSubOutcome,
    keep_heard,
    log_unknown_account,
    process_remote_sub,
    process_remote_unsub,
)
from gnats.core.messages.encode cimport FORM_RHMSG, FORM_RMSG
from gnats.core.messages.message cimport Message, RemoteArgs
from gnats.core.messages.reserved cimport is_mapped_reply
from gnats.core.net.connection cimport (
    CTL_RESUME,
    PROTOCOL_VIOLATION,
    READ_ERROR,
    WRITE_ERROR,
    Connection,
    SessionType,
)
from gnats.core.net.log_records cimport (
    LOG_INTEREST_MODE,
    LOG_UNKNOWN_ACCOUNT_MSG,
    LOG_WRONG_DIRECTION,
    TRACE_IN_PAYLOAD,
)
from gnats.core.net.pollstate cimport PollerBase, hand_over_first
from gnats.core.protocol.parser cimport (
    BAD_REMOTE_SUB_ARGS,
    BAD_REMOTE_UNSUB_ARGS,
    PARSE_CLOSED,
    ParserHandlers,
)
from gnats.core.protocol.words cimport is_word
from gnats.core.publishing cimport begin_message
from gnats.core.routing.gateway_return cimport take_answer
from gnats.core.runtime.const cimport MAX_CONTROL_LINE_SIZE
from gnats.core.runtime.inbox cimport inbox_divide
from gnats.core.runtime.kinds cimport GATEWAY
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.sessioninput cimport go_on, input_init
from gnats.core.subjects.interest_queue cimport InterestChange, change_queue, change_subject
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport likely, load8, store32, store8
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put, put_text

cdef enum:
    FIRST_UNKNOWN = 4
    MOST_UNKNOWN = 256      # accounts that the peer is told once of that they do not exist

cdef extern from * nogil:
    """
    #define GNATS_BASE64 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    """
    const char *BASE64 "GNATS_BASE64"

cdef SessionType GATEWAY_SESSION
cdef ParserHandlers VERBS


cdef class GatewaySession(LinkSession):
    """A connection to another cluster; see Connection. `kind` is GATEWAY.

    Sizes are in bytes, -1 for no limit; `write_deadline` and `ping_interval` in seconds. `outbound`: this server has
    dialled. PINGs are sent from accept_connect() or join() on; a peer that does not come to there within the time of
    all unanswered PINGs is closed.
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
        bint outbound,
        int max_control_line=MAX_CONTROL_LINE_SIZE,
        int max_payload=-1,
        **_session,
    ):
        self.session = &GATEWAY_SESSION
        inbox_divide(&self.source)
        input_init(&self.input, kind, &VERBS, <void *> self)
        self.input.parser.max_control_line = max_control_line
        self.input.parser.max_payload = max_payload
        self.form = FORM_RMSG
        self.unsettled = 1
        self.outbound = outbound
        link_init(
            &self.link, self, registry, MOST_INTEREST, carries_none if outbound else carries, write_change,
            note_for_gateway)
        if outbound:
            self.link.leave = leave
        else:
            self.link.frame = write_command
        begin_message(self, &self.input.parser.pa.m)

    def __dealloc__(self):
        cdef size_t i
        if self.session != NULL:   # else __cinit__ failed before it set anything up
            link_session_free(self)
        for i in range(self.nunknown):
            free(self.unknown[i].p)
        free(self.unknown)

    # -- called from Python --------------------------------------------------------------------------------------

    def accept_connect(self) -> None:
        """Accept the peer's CONNECT: all verbs are allowed from now on. Go on parsing."""
        self.request(CTL_ACCEPTED | CTL_RESUME, 0)

    def join(
        self,
        *,
        bytes greeting not None=b"",
        bytes cluster not None,
        bint headers,
        bint traces,
        bytes command not None=b"",
        int32_t rank=0,
        bint digests=False,
    ) -> None:
        """Begin to exchange interest and messages with the peer, which is registered: send `greeting`, go on parsing.

        The peer is of `cluster`; `headers` and `traces` say what it knows. An inbound session announces all interest:
        `command` is the text of an INFO line up to the value of gateway_cmd. An outbound one is sent messages; see
        set_rank() for `rank`. With `digests`, the peer and this server compare digests of interest. Call it once.
        Raises MemoryError.
        """
        self.append_remote(greeting)
        self.keep += [cluster, command]
        self.set_rank(rank)
        pthread_mutex_lock(&self.lock)
        self.staged_cluster.p = PyBytes_AS_STRING(cluster)
        self.staged_cluster.n = PyBytes_GET_SIZE(cluster)
        self.staged_command.p = PyBytes_AS_STRING(command)
        self.staged_command.n = PyBytes_GET_SIZE(command)
        self.staged_form = FORM_RHMSG if headers else FORM_RMSG
        store8(&self.form, self.staged_form)   # pollers may send answers from now on (core.routing.gateway_return)
        self.staged_traces = traces
        self.staged_digests = digests
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_JOINED | CTL_RESUME, 0)

    def set_rank(self, int32_t rank) -> None:
        """Place an outbound session among the others: a message for a queue group goes to the lowest rank first."""
        store32(<uint32_t *> &self.rank, <uint32_t> max(rank, 0))

    # -- the session ---------------------------------------------------------------------------------------------

    cdef void take_requests(self, uint32_t ctl) noexcept nogil:
        if load8(&self.closing):
            return   # closing() has undone what would begin here
        self.take_link_requests(ctl)
        if ctl & CTL_ACCEPTED:
            self.settle()
        if ctl & CTL_JOINED and not self.joined:
            self.begin_to_link()

    cdef void begin_to_link(self) noexcept nogil:
        self.settle()
        self.joined = self.admitted = 1
        self.input.parser.auth_set = 0
        pthread_mutex_lock(&self.lock)
        self.cluster = self.staged_cluster
        self.command = self.staged_command
        pthread_mutex_unlock(&self.lock)
        self.input.parser.headers = self.staged_form == FORM_RHMSG
        self.traces = self.staged_traces
        self.keep_digests(self.staged_digests and not self.outbound, self.staged_digests and self.outbound)
        link_begin(&self.link)
        if not self.outbound:
            self.announce_first()

    # -- interest of this cluster --------------------------------------------------------------------------------

    cdef bint write_change(self, const InterestChange *change) noexcept nogil:
        """Queue an RS+ or RS-. False: no memory."""
        cdef const Slice *account = &(<Account> change.account).name
        cdef char[FEW_BYTES] few
        cdef char *line = few
        cdef char *p
        cdef bint written
        cdef size_t room = strlen(b"RS+   1\r\n") + account.n + 1 + change.subject_len + change.queue_len
        if room > sizeof(few):
            line = <char *> malloc(room)
            if line == NULL:
                return False
        p = put(put_text(line, b"RS+ " if change.now.local else b"RS- "), account.p, account.n)
        p = put(put_text(p, b" "), change_subject(change), change.subject_len)
        if change.queue_len:
            p = put(put_text(p, b" "), change_queue(change), change.queue_len)
            if change.now.local:
                p = put_text(p, b" 1")
        written = self.queue_line(line, p)
        if line != few:
            free(line)
        return written

    cdef bint write_command(self, Account account, bint begins) noexcept nogil:
        """Queue the INFO before, or behind, all interest in an account. False: no memory."""
        cdef char[FEW_BYTES] few
        cdef char *line = few
        cdef char *p
        cdef bint written
        cdef size_t room = (
            self.command.n + strlen(b'2,"gateway_cmd_payload":""}\r\n') + base64_size(account.name.n))
        if room > sizeof(few):
            line = <char *> malloc(room)
            if line == NULL:
                return False
        p = put_text(put(line, self.command.p, self.command.n), b"2" if begins else b"3")
        p = put_base64(put_text(p, b',"gateway_cmd_payload":"'), &account.name)
        written = self.queue_line(line, put_text(p, b'"}'))
        if line != few:
            free(line)
        if load8(&self.server._debug):
            log_mode(self, &account.name, not begins)
        return written

    # -- interest of the peer's cluster --------------------------------------------------------------------------

    cdef int process_sub(self, char *arg, size_t n, bint add) noexcept nogil:
        cdef RemoteInterest whose
        cdef RemoteSubOutcome outcome
        if not self.outbound:
            return self.wrong_direction(b"RS+" if add else b"RS-")
        self.read_subs += 1
        if not self.joined:
            return go_on(self)
        hand_over_first(self.ps)
        whose.kind = c'R'
        whose.account.p = NULL
        if add:
            outcome = process_remote_sub(self, self.registry, &self.heard, &whose, arg, n)
        else:
            outcome = process_remote_unsub(self, self.registry, &self.heard, &whose, arg, n)
        if outcome == REMOTE_SUB_BAD_ARGS:
            return self.violation(BAD_REMOTE_SUB_ARGS if add else BAD_REMOTE_UNSUB_ARGS, c'G', arg, n)
        if outcome == REMOTE_SUB_NO_MEMORY:
            self.out_of_memory(READ_ERROR)
            return PARSE_CLOSED
        return go_on(self)   # an invalid subject is ignored

    cdef int process_account_sub(self, bint add) noexcept nogil:
        # The other side says so of an account that it does not have, or has again: its interest says the same.
        if self.outbound:
            return go_on(self)
        return self.wrong_direction(b"A+" if add else b"A-")

    # -- messages ------------------------------------------------------------------------------------------------

    cdef int process_inbound_msg(self) noexcept nogil:
        cdef Message m = self.input.parser.pa.m
        cdef RemoteArgs own
        self.read_msgs += 1
        self.read_bytes += m.n
        if self.outbound:
            return self.wrong_direction(b"HMSG" if m.hdr_text.n else b"RMSG")
        if self.trace:
            self.trace_msg(TRACE_IN_PAYLOAD, m.data, m.n + 2, m.hdr)
        if m.remote == NULL:   # a client's PUB, which servers do not send
            return go_on(self)
        m.account = self.registry.find(m.remote.account.p, m.remote.account.n)
        if m.account == NULL:
            self.note_unknown_account(&m)
            return go_on(self)
        if likely(not is_mapped_reply(&m.subject)):
            count_received(<Account> m.account, self.ps, GATEWAY, m.n)
        elif not take_answer(self, &m, &own):
            return go_on(self)
        elif m.remote != &own:   # there are no gateways; else no account counts what answers a mapped reply
            count_received(<Account> m.account, self.ps, GATEWAY, m.n)
        show_deliver_subject(&m)
        self.route_message(&m)
        return go_on(self)

    cdef void note_unknown_account(self, const Message *m) noexcept nogil:
        """Tell the peer, once, that an account does not exist here."""
        cdef const Slice *name = &m.remote.account
        cdef Slice *added
        cdef size_t i
        if load8(&self.server._debug):
            log_unknown_account(self, LOG_UNKNOWN_ACCOUNT_MSG, name, &m.subject)
        for i in range(self.nunknown):
            if self.unknown[i].n == name.n and memcmp(self.unknown[i].p, name.p, name.n) == 0:
                return
        if self.nunknown == MOST_UNKNOWN:
            self.forget_unknown()
        if self.nunknown == self.unknown_cap:
            if not array_grow(&self.unknown, &self.unknown_cap, FIRST_UNKNOWN, sizeof(Slice)):
                return
        added = &self.unknown[self.nunknown]
        added.p = <char *> malloc(strlen(b"A- \r\n") + name.n)
        if added.p == NULL:
            return
        # The line, and then the name alone
        if not self.queue_line(added.p, put(put_text(added.p, b"A- "), name.p, name.n)):
            self.out_of_memory(WRITE_ERROR)
        memmove(added.p, added.p + strlen(b"A- "), name.n)
        added.n = name.n
        self.nunknown += 1

    cdef void forget_unknown(self) noexcept nogil:
        cdef size_t i
        for i in range(self.nunknown):
            free(self.unknown[i].p)
        self.nunknown = 0

    cdef int process_ping(self) noexcept nogil:
        # No message comes behind the interest here: the PONG says that the peer has all that there was, unless more
        # waits than the peer reads.
        self.interest_waits = link_announce(self, &self.link, ANNOUNCE_READY)
        return LinkSession.process_ping(self)

    cdef int process_pong(self) noexcept nogil:
        self.measured = self.outbound and self.joined   # the nearest cluster comes first
        return LinkSession.process_pong(self)

    cdef int wrong_direction(self, const char *verb) noexcept nogil:
        self.log(LOG_WRONG_DIRECTION, not self.outbound, verb, strlen(verb))
        self.close_connection_nogil(PROTOCOL_VIOLATION)
        return PARSE_CLOSED


cdef inline size_t base64_size(size_t n) noexcept nogil:
    return (n + 2) // 3 * 4


cdef char *put_base64(char *p, const Slice *data) noexcept nogil:
    """Write base64_size(data.n) bytes and return their end."""
    cdef const uint8_t *at = <const uint8_t *> data.p
    cdef size_t left = data.n
    cdef uint32_t bits
    while left:
        bits = at[0] << 16
        if left > 1:
            bits |= at[1] << 8
        if left > 2:
            bits |= at[2]
        p[0] = BASE64[bits >> 18]
        p[1] = BASE64[bits >> 12 & 63]
        p[2] = BASE64[bits >> 6 & 63] if left > 1 else c'='
        p[3] = BASE64[bits & 63] if left > 2 else c'='
        p += 4
        at += 3
        left -= min(left, <size_t> 3)
    return p


cdef void log_mode(GatewaySession c, const Slice *account, bint complete) noexcept nogil:
    """Log that an account is announced to the peer, or has been."""
    cdef size_t n = c.cluster.n + 1 + account.n
    cdef char *names = <char *> malloc(n)
    if names == NULL:
        return
    put(names, c.cluster.p, c.cluster.n)[0] = 0
    put(names + c.cluster.n + 1, account.p, account.n)
    c.log(LOG_INTEREST_MODE, complete, names, n)
    free(names)


# -- the link's functions ----------------------------------------------------------------------------------------------

cdef bint carries(Subscriber owner, Account account) noexcept nogil:
    return is_word(&account.name)   # else no line could name it


cdef bint carries_none(Subscriber owner, Account account) noexcept nogil:
    """An outbound session announces nothing."""
    return False


cdef void leave(Subscriber owner, const Subscription *s, bint removed) noexcept nogil:
    """Keep the interest in an account that has been removed."""
    if not keep_heard(owner, &(<GatewaySession> owner).heard, s):
        owner.out_of_memory(READ_ERROR)
    store8(&(<GatewaySession> owner).link.came, 1)   # another one of the same name may be there already


cdef bint write_change(Subscriber owner, const InterestChange *change) noexcept nogil:
    return (<GatewaySession> owner).write_change(change)


cdef bint write_command(Subscriber owner, Account account, bint begins) noexcept nogil:
    if begins:
        (<GatewaySession> owner).forget_unknown()
    return (<GatewaySession> owner).write_command(account, begins)


# -- the session's functions: the connection calls them ----------------------------------------------------------------

cdef void on_control(Connection c, uint32_t ctl) noexcept nogil:
    (<GatewaySession> c).take_requests(ctl)


share_link_session(&GATEWAY_SESSION)
GATEWAY_SESSION.on_control = on_control


# -- the parser's handlers ---------------------------------------------------------------------------------------------

cdef int process_inbound_msg(void *owner) noexcept nogil:
    return (<GatewaySession> owner).process_inbound_msg()


cdef int process_sub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<GatewaySession> owner).process_sub(arg, n, True)


cdef int process_unsub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<GatewaySession> owner).process_sub(arg, n, False)


cdef int process_account_sub(void *owner, char *arg, size_t n, bint add) noexcept nogil:
    return (<GatewaySession> owner).process_account_sub(add)


share_link_verbs(&VERBS)
VERBS.process_inbound_msg = process_inbound_msg
VERBS.process_sub = process_sub
VERBS.process_unsub = process_unsub
VERBS.process_account_sub = process_account_sub
