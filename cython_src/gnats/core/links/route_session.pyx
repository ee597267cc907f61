"""The session of a route; see route_session.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, strlen

from gnats.core.accounts.account cimport Account, count_received
from gnats.core.accounts.guard cimport may_publish
from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport CTL_PERMISSIONS, Subscriber
from gnats.core.accounts.subscriptions cimport apply_permissions
from gnats.core.auth.permissions cimport Permissions
from gnats.core.links.audience cimport note_for_route
from gnats.core.links.link cimport ANNOUNCE_ALL, link_account_changed, link_announce, link_begin, link_init
from gnats.core.links.link_session cimport (
    CTL_ACCEPTED,
    CTL_JOINED,
    FEW_BYTES,
    LINK_CTL,
    MOST_INTEREST,
    LinkSession,
    link_session_free,
    share_link_session,
    share_link_verbs,
    show_deliver_subject,
)
from gnats.core.links.remote_subs cimport (
    REMOTE_SUB_BAD_ARGS,
    REMOTE_SUB_INVALID,
    REMOTE_SUB_NO_MEMORY,
    RemoteInterest,
    RemoteSubOutcome,
    forget_heard,
    forget_kept,
    keep_heard,
    log_unknown_account,
    process_remote_sub,
    process_remote_unsub,
)
from gnats.core.messages.encode cimport FORM_RHMSG, FORM_RMSG
from gnats.core.messages.message cimport Message, RemoteArgs
from gnats.core.messages.reserved cimport is_mapped_reply
from gnats.core.net.connection cimport CTL_RESUME, READ_ERROR, WRITE_ERROR, Connection, SessionType
from gnats.core.net.log_records cimport LOG_INVALID_REMOTE_SUB, LOG_UNKNOWN_ACCOUNT_MSG, TRACE_IN_PAYLOAD
from gnats.core.net.pollstate cimport PollerBase, hand_over_first
from gnats.core.pings cimport send_ping
from gnats.core.protocol.answers cimport send_err, send_ok
from gnats.core.protocol.parser cimport BAD_REMOTE_SUB_ARGS, BAD_REMOTE_UNSUB_ARGS, PARSE_CLOSED, ParserHandlers
from gnats.core.protocol.words cimport is_word
from gnats.core.publishing cimport begin_message
from gnats.core.routing.gateway_return cimport take_answer
from gnats.core.runtime.const cimport MAX_CONTROL_LINE_SIZE
from gnats.core.runtime.inbox cimport inbox_divide
from gnats.core.runtime.kinds cimport ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.sessioninput cimport go_on, input_init
from gnats.core.subjects.interest_queue cimport InterestChange, change_origin, change_queue, change_subject
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport likely, load8, store8
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text

cdef enum:
    CTL_VERBOSE = LINK_CTL          # accept_connect(verbose=True)
    CTL_AGAIN = LINK_CTL << 1       # announce_again()
    CTL_CARRY = LINK_CTL << 2       # drop_account(), carry()

cdef SessionType ROUTE_SESSION
cdef ParserHandlers VERBS


cdef class RouteSession(LinkSession):
    """A connection to another server of the cluster; see Connection. `kind` is ROUTER.

    Sizes are in bytes, `write_deadline` and `ping_interval` in seconds. With `negotiates`, send no PING before
    compress() or join(), and close the connection when neither is called within the time of all unanswered PINGs.
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
        int max_control_line=MAX_CONTROL_LINE_SIZE,
        **_session,
    ):
        self.session = &ROUTE_SESSION
        inbox_divide(&self.source)
        input_init(&self.input, kind, &VERBS, <void *> self)
        self.input.parser.max_control_line = max_control_line
        self.input.parser.max_payload = -1
        self.form = FORM_RMSG
        link_init(&self.link, self, registry, MOST_INTEREST, carries, write_change, note_for_route)
        begin_message(self, &self.input.parser.pa.m)

    def __dealloc__(self):
        if self.session != NULL:   # else __cinit__ failed before it set anything up
            link_session_free(self)
        free(self.pinned)
        free(self.changes)

    # -- called from Python --------------------------------------------------------------------------------------

    def accept_connect(self, *, bint verbose=False) -> None:
        """Accept the peer's CONNECT: all verbs are allowed from now on. Go on parsing.

        With `verbose`, answer messages and interest with +OK.
        """
        self.request((CTL_VERBOSE if verbose else 0) | CTL_ACCEPTED | CTL_RESUME, 0)

    def join(
        self,
        *,
        bytes greeting not None=b"",
        int pool_index,
        uint32_t pool_size,
        bytes account not None=b"",
        tuple pinned not None=(),
        bint headers,
        bint traces,
        int origins=0,
        Permissions permissions=None,
        bint measure=False,
        bint digests=False,
        bint passes=False,
    ) -> None:
        """Begin to exchange interest and messages with the peer, which is registered: send `greeting`, go on parsing.

        The connection carries the accounts whose names have the index `pool_index` in a pool of `pool_size`
        connections, without those named in `pinned`; all accounts when the index is -1; or only the account that
        `account` names. `headers` and `traces` say what the peer knows, `origins` whether it knows the origins of what
        comes from leaf nodes: 0, 1 (not with LS-), 2, 3 (also `_`, which is no cluster); `permissions` what is
        announced (publish) and what the peer may subscribe to. With `measure`, send a PING, and post EV_PONG when it is
        answered. With `digests`, the peer and this server compare digests of interest. `passes`: the peer knows
        messages that are passed on to queue groups alone. Call it once. Raises MemoryError.
        """
        cdef list kept = [account, *pinned]
        cdef Slice *names = <Slice *> calloc(len(kept), sizeof(Slice))
        cdef uint32_t n = 0
        if names == NULL:
            raise MemoryError
        self.append_remote(greeting)
        try:
            self.stage_permissions(permissions)
        except MemoryError:
            free(names)
            raise
        for name in kept:
            names[n].p = PyBytes_AS_STRING(name)
            names[n].n = PyBytes_GET_SIZE(name)
            n += 1
        self.keep += kept
        pthread_mutex_lock(&self.lock)
        self.pool_index = pool_index
        self.pool_size = pool_size
        self.account_name = names[0]
        self.pinned = names
        self.npinned = self.pinned_cap = n
        # Pollers may send answers from now on (core.routing.gateway_return).
        store8(&self.form, FORM_RHMSG if headers else FORM_RMSG)
        self.staged_traces = traces
        self.staged_origins = origins
        self.staged_measured = measure
        self.staged_digests = digests
        self.staged_passes = passes
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_JOINED | CTL_RESUME, 0)

    def announce_again(self) -> None:
        """Announce all interest again: the peer accepts more of it now."""
        self.request(CTL_AGAIN, 0)

    def drop_account(self, bytes name not None) -> None:
        """Announce an account no longer, and forget the peer's interest in it. Raises MemoryError.

        The peer, which is told so by other means, forgets ours. The account may be dropped already: the peer may have
        told of it since.
        """
        self.change_account(name, True)

    def carry(self, bytes name not None) -> None:
        """Undo drop_account(), or join()'s `pinned` for this account: announce its interest. Raises MemoryError."""
        self.change_account(name, False)

    def change_account(self, bytes name not None, bint drop) -> None:
        cdef bint grown = True
        self.keep.append(name)
        pthread_mutex_lock(&self.lock)
        if self.nchanges == self.changes_cap:
            grown = array_grow(&self.changes, &self.changes_cap, 4, sizeof(CarryChange))
        if grown:
            self.changes[self.nchanges].name.p = PyBytes_AS_STRING(name)
            self.changes[self.nchanges].name.n = PyBytes_GET_SIZE(name)
            self.changes[self.nchanges].drop = drop
            self.nchanges += 1
        pthread_mutex_unlock(&self.lock)
        if not grown:
            raise MemoryError
        self.request(CTL_CARRY, 0)

    # -- the session ---------------------------------------------------------------------------------------------

    cdef void take_requests(self, uint32_t ctl) noexcept nogil:
        if load8(&self.closing):
            return   # closing() has undone what would begin here
        if ctl & CTL_ACCEPTED:
            self.verbose = ctl & CTL_VERBOSE != 0
        self.take_link_requests(ctl)
        if ctl & CTL_JOINED and not self.joined:
            self.settle()
            self.joined = 1
            self.admitted = 1
            self.one_account = self.account_name.n != 0
            self.input.parser.has_account = not self.one_account
            self.traces = self.staged_traces
            self.origins = self.staged_origins
            self.passes = self.staged_passes
            apply_permissions(self)
            self.link.unnamed = self.one_account
            self.link.leave = leave
            self.keep_digests(self.staged_digests, self.staged_digests)
            link_begin(&self.link)
            self.announce_first()
            if self.staged_measured:
                self.measured = 1
                send_ping(self, &self.pings)
        elif ctl & CTL_PERMISSIONS:
            self.change_permissions()
        if ctl & CTL_CARRY:
            self.change_accounts()
        if ctl & CTL_AGAIN and self.joined:
            self.walk(write_change)

    cdef bint carries(self, Account account) noexcept nogil:
        cdef size_t i
        if self.one_account:
            return same(&account.name, &self.account_name)
        if not is_word(&account.name):
            return False   # no line could name it
        if self.pool_index < 0:
            return True
        for i in range(1, self.npinned):
            if same(&account.name, &self.pinned[i]):
                return False
        return <int64_t> (fnv32(&account.name) % self.pool_size) == self.pool_index

    cdef void change_permissions(self) noexcept nogil:
        if not self.joined:
            apply_permissions(self)
            return
        link_announce(self, &self.link, ANNOUNCE_ALL)
        self.permissions_before = self.guard.permissions
        apply_permissions(self)
        self.changing = 1
        self.walk(write_difference)
        self.changing = 0

    cdef void change_accounts(self) noexcept nogil:
        cdef CarryChange *changes
        cdef size_t i, n
        pthread_mutex_lock(&self.lock)
        changes = self.changes
        n = self.nchanges
        self.changes = NULL
        self.nchanges = self.changes_cap = 0
        pthread_mutex_unlock(&self.lock)
        for i in range(n):
            if self.one_account or self.pool_index < 0:
                continue   # it carries that account alone, or all of them
            if not self.set_pinned(&changes[i].name, changes[i].drop):
                self.close_soon(WRITE_ERROR)
                break
            if self.joined and not load8(&self.closing):
                link_account_changed(self, &self.link, &changes[i].name)
            if changes[i].drop:
                forget_kept(&self.heard, &changes[i].name)
        free(changes)

    cdef bint set_pinned(self, const Slice *name, bint pinned) noexcept nogil:
        """Add a name to `pinned`, or remove it. False: no memory."""
        cdef bint done = True
        cdef size_t i = 0
        pthread_mutex_lock(&self.registry.lock)
        while i < self.npinned:
            if not i or not same(&self.pinned[i], name):
                i += 1
                continue
            self.npinned -= 1
            self.pinned[i] = self.pinned[self.npinned]
        if pinned:
            done = self.npinned < self.pinned_cap or array_grow(
                &self.pinned, &self.pinned_cap, 4, sizeof(Slice))
            if done:
                self.pinned[self.npinned] = name[0]
                self.npinned += 1
        pthread_mutex_unlock(&self.registry.lock)
        return done

    cdef bint write_change(self, const InterestChange *change) noexcept nogil:
        """Queue the RS+ or RS- for a change, unless permissions forbid to announce the subject."""
        cdef Slice subject
        subject.p = <char *> change_subject(change)
        subject.n = change.subject_len
        if self.guard.permissions == NULL or may_publish(&self.guard, self.ps, &subject):
            return self.write_interest(change, change.now.local != 0)
        # While permissions change: the peer may know of it, as the former ones allowed.
        if self.changing and is_announced(self.permissions_before, change):
            return self.write_interest(change, False)
        return True

    cdef bint write_difference(self, const InterestChange *change) noexcept nogil:
        cdef bint before = is_announced(self.permissions_before, change)
        cdef bint now = is_announced(self.guard.permissions, change)
        return before == now or self.write_interest(change, now)

    cdef bint write_interest(self, const InterestChange *change, bint begins) noexcept nogil:
        cdef const Slice *account = &(<Account> change.account).name
        cdef Slice origin = change_origin(change)
        cdef char[FEW_BYTES] few
        cdef char *line = few
        cdef char *p
        cdef bint written
        cdef size_t room = (
            strlen(b"RS+ \r\n") + origin.n + account.n + change.subject_len + change.queue_len + 4 + NUMBER_ROOM)
        if room > sizeof(few):
            line = <char *> malloc(room)
            if line == NULL:
                return False
        if origin.n:
            p = put_text(line, b"LS+ " if begins else b"LS- ")
            if begins or self.origins > 1:
                p = put_text(put(p, origin.p, origin.n), b" ")
        else:
            p = put_text(line, b"RS+ " if begins else b"RS- ")
        if not self.one_account:
            p = put_text(put(p, account.p, account.n), b" ")
        p = put(p, change_subject(change), change.subject_len)
        if change.queue_len:
            p = put(put_text(p, b" "), change_queue(change), change.queue_len)
            if begins:
                p = put_number(put_text(p, b" "), change.now.local)
        written = self.queue_line(line, p)
        if line != few:
            free(line)
        return written

    # -- verbs ---------------------------------------------------------------------------------------------------

    cdef int process_sub(self, char *arg, size_t n, bint add) noexcept nogil:
        cdef char op = self.input.parser.op | 0x20
        cdef RemoteInterest whose
        cdef RemoteSubOutcome outcome
        self.read_subs += 1
        if op == c's' or not self.joined:
            return go_on(self)   # a client's SUB, which servers do not send
        hand_over_first(self.ps)
        whose.kind = c'L' if op == c'l' else c'R'
        whose.account.p = NULL
        if self.one_account:
            whose.account = self.account_name
        if add:
            outcome = process_remote_sub(self, self.registry, &self.heard, &whose, arg, n)
        else:
            outcome = process_remote_unsub(self, self.registry, &self.heard, &whose, arg, n)
        if outcome == REMOTE_SUB_BAD_ARGS:
            return self.violation(BAD_REMOTE_SUB_ARGS if add else BAD_REMOTE_UNSUB_ARGS, whose.kind, arg, n)
        if outcome == REMOTE_SUB_NO_MEMORY:
            self.out_of_memory(READ_ERROR)
            return PARSE_CLOSED
        if outcome == REMOTE_SUB_INVALID:
            self.log(LOG_INVALID_REMOTE_SUB, 0, NULL, 0)
            send_err(self, b"Invalid Subscription")
        elif self.verbose:
            send_ok(self)
        return go_on(self)

    cdef int process_inbound_msg(self) noexcept nogil:
        cdef Message m = self.input.parser.pa.m
        cdef RemoteArgs own
        self.read_msgs += 1
        self.read_bytes += m.n
        if self.trace:
            self.trace_msg(TRACE_IN_PAYLOAD, m.data, m.n + 2, m.hdr)
        if self.verbose:
            send_ok(self)
        m.account = self.account_of(&m)
        if m.account == NULL:
            if load8(&self.server._debug) and m.remote != NULL:
                log_unknown_account(self, LOG_UNKNOWN_ACCOUNT_MSG, &m.remote.account, &m.subject)
            return go_on(self)
        if likely(not is_mapped_reply(&m.subject)):
            count_received(<Account> m.account, self.ps, ROUTER, m.n)
        elif not take_answer(self, &m, &own):
            return go_on(self)
        elif m.remote != &own:   # there are no gateways; else no account counts what answers a mapped reply
            count_received(<Account> m.account, self.ps, ROUTER, m.n)
        show_deliver_subject(&m)
        self.route_message(&m)
        return go_on(self)

    cdef Slice only_account(self) noexcept nogil:
        return self.account_name if self.one_account else LinkSession.only_account(self)

    cdef void *account_of(self, const Message *m) noexcept nogil:
        """Return the account that a message names, NULL when there is none."""
        if m.remote == NULL or not self.joined:
            return NULL
        if self.one_account:
            return self.registry.find(self.account_name.p, self.account_name.n)
        return self.registry.find(m.remote.account.p, m.remote.account.n)


cdef inline bint is_announced(const void *permissions, const InterestChange *change) noexcept nogil:
    return permissions == NULL or (<Permissions> permissions).pub_allowed(
        ROUTER, change_subject(change), change.subject_len)


cdef inline bint same(const Slice *a, const Slice *b) noexcept nogil:
    return a.n == b.n and memcmp(a.p, b.p, a.n) == 0


cdef inline uint32_t fnv32(const Slice *name) noexcept nogil:
    """Hash a name as both servers do, to choose the same connection (computeRoutePoolIdx): FNV-1a."""
    cdef uint32_t hash = 2166136261
    cdef size_t i
    for i in range(name.n):
        hash = (hash ^ <uint8_t> name.p[i]) * 16777619
    return hash


# -- the link's functions ----------------------------------------------------------------------------------------------

cdef bint carries(Subscriber owner, Account account) noexcept nogil:
    return (<RouteSession> owner).carries(account)


cdef void leave(Subscriber owner, const Subscription *s, bint removed) noexcept nogil:
    if not removed:
        forget_heard(&(<RouteSession> owner).heard, s)
    elif not keep_heard(owner, &(<RouteSession> owner).heard, s):
        owner.out_of_memory(READ_ERROR)


cdef bint write_change(Subscriber owner, const InterestChange *change) noexcept nogil:
    return (<RouteSession> owner).write_change(change)


cdef bint write_difference(Subscriber owner, const InterestChange *change) noexcept nogil:
    return (<RouteSession> owner).write_difference(change)


# -- the session's functions: the connection calls them ----------------------------------------------------------------

cdef void on_control(Connection c, uint32_t ctl) noexcept nogil:
    (<RouteSession> c).take_requests(ctl)


share_link_session(&ROUTE_SESSION)
ROUTE_SESSION.on_control = on_control


# -- the parser's handlers ---------------------------------------------------------------------------------------------

cdef int process_inbound_msg(void *owner) noexcept nogil:
    return (<RouteSession> owner).process_inbound_msg()


cdef int process_sub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<RouteSession> owner).process_sub(arg, n, True)


cdef int process_unsub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<RouteSession> owner).process_sub(arg, n, False)


share_link_verbs(&VERBS)
VERBS.process_inbound_msg = process_inbound_msg
VERBS.process_sub = process_sub
VERBS.process_unsub = process_unsub
