"""A client: verbs, subscriptions, what it publishes; see client.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, strlen

from gnats.core.account cimport Account, account_imports_streams, account_mappings
from gnats.core.batch cimport end_batch
from gnats.core.clock cimport monotonic_ns
from gnats.core.connection cimport (
    AUTHENTICATION_VIOLATION,
    CTL_CONNECTED,
    CTL_IMPORTS,
    CTL_PERMISSIONS,
    CTL_RESUME,
    MAX_CONTROL_LINE_EXCEEDED,
    MAX_PAYLOAD_EXCEEDED,
    PARSE_ERROR,
    PROTOCOL_VIOLATION,
    READ_ERROR,
    WRITE_ERROR,
)
from gnats.core.delivery cimport Deliverer
from gnats.core.departures cimport depart, settle_before_subscribing
from gnats.core.inbox cimport EV_CONNECT, EV_INFO, Inbox
from gnats.core.kinds cimport ACCOUNT, CLIENT, JETSTREAM, SYSTEM
from gnats.core.mappings cimport Mappings, select_mapped_subject
from gnats.core.message cimport SIZES_ROOM, Message, NativeSub, message_set_data, native_sub
from gnats.core.msgtrace cimport REFUSED_REPLY, REFUSED_SIZE, REFUSED_SUBJECT, trace_mapping, trace_refused
from gnats.core.parser cimport (
    BAD_OPERATION,
    BAD_SUB_ARGS,
    BAD_UNSUB_ARGS,
    OVER_MAX_CONTROL_LINE,
    OVER_MAX_PAYLOAD,
    PARSER_OUT_OF_MEMORY,
    PARSE_CLOSED,
    PARSE_OK,
    PARSE_PUNT,
    parse_size,
)
from gnats.core.permissions cimport Permissions
from gnats.core.pollstate cimport PollState, pollstate_busy
from gnats.core.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_retire, qs_unregister
from gnats.core.records cimport (
    LOG_AUTH_VIOLATION,
    LOG_CLIENT_ERROR,
    LOG_MAX_SUBSCRIPTIONS,
    LOG_REPLY_VIOLATION,
    TRACE_DELSUB,
    TRACE_IN,
    TRACE_IN_PAYLOAD,
    TRACE_OUT,
)
from gnats.core.reserved cimport is_gateway_reply, is_jetstream_ack, is_raft_subject
from gnats.core.results cimport results_match
from gnats.core.route cimport ROUTE_DELIVERED, ROUTE_NO_MEMORY, RouteOutcome, process_msg_results, route
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport SL_NO_MEMORY, SL_OK, SUB_NATIVE, MatchResult, Subscription, sub_new, sub_row, sub_sid
from gnats.core.subtable cimport (
    SOME,
    subtable_add,
    subtable_find,
    subtable_remove,
    subtable_take,
    subtable_take_some,
    subtable_text,
)
from gnats.core.timers cimport timer_clear
from gnats.core.tracing cimport TRACE_ON, TRACE_SKIP, init_msg_trace, may_be_traced, send_msg_trace, set_trace_dest
from gnats.includes.atomics cimport bump64, load8, load64, loadi64, store8, store64, storei64, unlikely
from gnats.includes.linux cimport eventfd_write
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text

cdef enum:
    SLICE = 256                    # subscriptions removed under one lock
    MANY = 512                     # more of them are not removed in one batch
    NOTED = 32768                  # bytes of a closed connection's subscriptions that monitoring can show

cdef const char *NO_RESPONDERS = b"NATS/1.0 503\r\nNats-Subject: "


cdef inline bint is_reserved_reply(const Slice *reply) noexcept nogil:
    # service imports, JetStream acknowledgements, gateway replies
    if reply.p[0] == c'_':
        return (reply.n > 3 and memcmp(reply.p, b"_R_.", 4) == 0) or is_gateway_reply(reply)
    return reply.p[0] == c'$' and (is_jetstream_ack(reply) or is_gateway_reply(reply))


cdef inline int go_on(Client c) noexcept nogil:
    """What a handler returns: the parser stops once we are closing."""
    return PARSE_CLOSED if load8(&c.closing) else PARSE_OK


cdef inline void begin_message(Client c, Message *m) noexcept nogil:
    """Set what the messages of a client have in common; shown as their subject, without a reply."""
    m.ps = c.ps
    m.origin = <void *> c
    m.account = c.account
    m.shown.p = m.reply.p = NULL
    m.shown.n = m.reply.n = 0
    m.hop = NULL
    m.trace = NULL


cdef inline bint route_msg(Client c, const Message *m) noexcept nogil:
    """Deliver to the subscribers in the account; True when one received it."""
    cdef RouteOutcome outcome = route(m, (<Account> c.account).sublist)
    if unlikely(outcome == ROUTE_NO_MEMORY):
        c.out_of_memory(READ_ERROR)
    elif outcome != ROUTE_DELIVERED and m.reply.p != NULL and c.opts.no_responders:
        c.no_responders(m)
    return outcome == ROUTE_DELIVERED


cdef inline int process_inbound_client_msg(Client c, Message *m, Mappings *mappings) noexcept nogil:
    """Check and route a message; the mappings, NULL for none, change it."""
    c.batch_msgs += 1
    c.batch_bytes += m.n
    if unlikely(mappings != NULL):
        c.map_subject(m, mappings)   # what follows knows the new subject only
    if c.trace:
        c.trace_msg(TRACE_IN_PAYLOAD, m.data, m.n + 2, m.hdr)
    if unlikely(m.subject.n and (m.subject.p[0] == c'_' or m.subject.p[0] == c'$')):
        if is_gateway_reply(&m.subject) or (
            is_raft_subject(&m.subject) and not load8(&(<Account> c.account)._is_system)
        ):
            return c.refuse_msg(m, REFUSED_SUBJECT)
    if unlikely(c.permissions != NULL) and not c.may_publish(&m.subject):
        return c.refuse_msg(m, REFUSED_SUBJECT)
    if m.reply.p != NULL and is_reserved_reply(&m.reply):
        return c.refuse_msg(m, REFUSED_REPLY)
    if unlikely(c.opts.verbose):
        c.send_ok()
    route_msg(c, m)
    return PARSE_OK


cdef uint32_t split_line(char *arg, size_t n, Slice *out, uint32_t most) noexcept nogil:
    """The words of a line into out[:most]; how many there are, most + 1 for more."""
    cdef uint32_t count = 0
    cdef size_t i
    cdef bint inside = False
    for i in range(n):
        if arg[i] == c' ' or arg[i] == c'\t' or arg[i] == c'\r' or arg[i] == c'\n':
            if inside:
                out[count - 1].n = arg + i - out[count - 1].p
                inside = False
        elif not inside:
            if count == most:
                return most + 1
            out[count].p = arg + i
            count += 1
            inside = True
    if inside:
        out[count - 1].n = arg + n - out[count - 1].p
    return count


cdef class Client(Deliverer):
    """A connection that speaks the protocol, or one of the server's own subscribers; see Connection."""

    def __dealloc__(self):
        if self.ps != NULL:   # else arguments were refused, and the methods are not there yet either
            self.started = 0   # this is in no batch
            self.remove_all_subs()

    # -- what Python calls ---------------------------------------------------------------------------------------

    def register(self, Account account not None) -> None:
        """Bind to an account, before start()."""
        self.keep.append(account)
        self.account = <void *> account
        begin_message(self, &self.pa.m)

    def connected(
        self,
        Account account not None,
        *,
        bint echo,
        bint verbose,
        bint pedantic,
        bint headers,
        bint no_responders,
        int protocol,
        bytes connect_info not None,
        bytes greeting not None=b"",
        Permissions permissions=None,
        int max_subs=-1,
        int max_payload=-1,
    ) -> None:
        """The answer to a CONNECT: take these options, send `greeting`, and go on parsing.

        `connect_info` is the INFO line that follows the first PONG of a client with protocol 1.
        `permissions` None means all, -1 no limit. Without memory the connection is closed. Raises MemoryError.
        """
        cdef char *copy = NULL
        cdef size_t n = PyBytes_GET_SIZE(connect_info)
        self.append_remote(greeting)
        if protocol >= 1 and not self.first_pong_sent and n:
            copy = <char *> malloc(n)
            if copy == NULL:
                self.close_without_memory()
                return
            memcpy(copy, PyBytes_AS_STRING(connect_info), n)
        self.stage_permissions(permissions)
        if not any(kept is account for kept in self.keep):
            self.keep.append(account)
        pthread_mutex_lock(&self.lock)
        self.staged.echo = echo
        self.staged.verbose = verbose
        self.staged.pedantic = pedantic
        self.staged.headers = headers
        self.staged.no_responders = no_responders
        self.staged.protocol = protocol
        self.staged.max_subs = self.staged_limits.max_subs = max_subs  # limits set before were another account's
        self.staged.max_payload = self.staged_limits.max_payload = max_payload
        self.staged_account = <void *> account
        free(self.connect_info)
        self.connect_info = copy
        self.connect_info_len = n
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_CONNECTED | CTL_RESUME, 0)

    @property
    def pong_sent(self) -> bool:
        """Whether the client's first PING has been answered: from then on it may be sent INFO at any time."""
        return load8(&self.first_pong_sent) != 0

    def subscribe_internal(self, bytes subject not None, bytes queue, bytes sid not None) -> None:
        """Subscribe the server itself: messages arrive as EV_MSG. Raises ValueError for an invalid subject or a
        sid in use, MemoryError."""
        cdef int error = 0
        cdef bytes q = queue or b""
        cdef Subscription *s
        if subtable_find(&self.subs, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid)) != NULL:
            raise ValueError(f"sid {sid!r} is in use")
        s = self.add_sub(
            PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), PyBytes_AS_STRING(q), PyBytes_GET_SIZE(q),
            PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid), &error)
        if s == NULL:
            raise MemoryError if error == 0 else ValueError(f"invalid subject {subject!r}")

    def unsubscribe_internal(self, bytes sid not None) -> None:
        """Undo subscribe_internal. Raises KeyError for an unknown sid."""
        cdef Subscription *s = subtable_find(&self.subs, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
        if s == NULL:
            raise KeyError(sid)
        self.unsubscribe(s)

    def publish_internal(self, bytes subject not None, bytes reply, bytes headers, bytes payload not None) -> bool:
        """Route a message as if this internal client had published it; True when somebody received it.

        `headers` is a whole header block ("NATS/1.0" line to the empty line). An empty `reply`, other than None,
        leaves its place in the MSG line empty, as nats-server's own messages do. Raises MemoryError.
        """
        cdef bytes hdr = headers or b""
        cdef bytes msg = hdr + payload
        cdef char[SIZES_ROOM] sizes
        cdef Message m
        cdef bint delivered
        qs_online(&self.ps.qs)
        self.ps.now = monotonic_ns()
        begin_message(self, &m)
        m.subject.p = PyBytes_AS_STRING(subject)
        m.subject.n = PyBytes_GET_SIZE(subject)
        if reply is not None:
            m.reply.p = PyBytes_AS_STRING(reply)
            m.reply.n = PyBytes_GET_SIZE(reply)
        message_set_data(&m, PyBytes_AS_STRING(msg), PyBytes_GET_SIZE(hdr), PyBytes_GET_SIZE(msg), sizes)
        delivered = route_msg(self, &m)
        end_batch(self.ps)
        if pollstate_busy(self.ps):
            eventfd_write(self.ps.evfd, 1)
        qs_offline(&self.ps.qs)
        return delivered

    cdef bint send(
        self, Account account, const char *subject, size_t sn, const char *shown, size_t shown_n,
        const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg, size_t n
    ) noexcept nogil:
        cdef char[SIZES_ROOM] sizes
        cdef char *joined = NULL
        cdef Message m
        cdef bint delivered
        cdef MatchResult *r = results_match(&self.ps.cache, account.sublist, subject, sn)
        if r == NULL:
            self.out_of_memory(WRITE_ERROR)
            return False
        if r.npsubs == 0 and r.nqgroups == 0:
            return False
        if hn and n and hdr + hn != msg:
            joined = <char *> malloc(hn + n)
            if joined == NULL:
                self.out_of_memory(WRITE_ERROR)
                return False
            memcpy(joined, hdr, hn)
            memcpy(joined + hn, msg, n)
        begin_message(self, &m)
        m.account = <void *> account
        m.subject.p = <char *> subject
        m.subject.n = sn
        m.shown.p = <char *> shown
        m.shown.n = shown_n
        if rn:
            m.reply.p = <char *> reply
            m.reply.n = rn
        message_set_data(&m, joined if joined != NULL else <char *> (hdr if hn else msg), hn, hn + n, sizes)
        delivered = process_msg_results(&m, r) == ROUTE_DELIVERED
        free(joined)
        return delivered

    def subscriptions(self) -> list:
        """(subject, queue, sid, delivered, max) of each subscription."""
        cdef QsParticipant reader
        cdef Subscription **all = NULL
        cdef Subscription *s
        cdef uint32_t i, n = 0
        cdef list out = []
        # Only pointers are copied under the lock; being online keeps what they point to.
        qs_register(&reader)
        qs_online(&reader)
        pthread_mutex_lock(&self.lock)
        if self.subs.n:
            all = <Subscription **> malloc(self.subs.n * sizeof(Subscription *))
        if all != NULL:
            for i in range(self.subs.mask + 1):
                s = self.subs.slots[i]
                while s != NULL:
                    all[n] = s
                    n += 1
                    s = s.next
        pthread_mutex_unlock(&self.lock)
        try:
            for i in range(n):
                out.append(sub_row(all[i]))
        finally:
            free(all)
            qs_offline(&reader)
            qs_unregister(&reader)
        return out

    # -- requests of other threads -------------------------------------------------------------------------------

    cdef void on_control(self, uint32_t ctl) noexcept nogil:
        cdef Subscription **reap
        cdef uint32_t i, n
        cdef void *account
        pthread_mutex_lock(&self.lock)
        reap = self.reap
        n = self.nreap
        self.reap = NULL
        self.nreap = self.reap_cap = 0
        pthread_mutex_unlock(&self.lock)
        for i in range(n):
            self.unsubscribe(reap[i])
        free(reap)
        if load8(&self.closing):
            return
        if not ctl & CTL_CONNECTED:
            if ctl & CTL_PERMISSIONS:
                self.apply_permissions()
            if ctl & CTL_IMPORTS:
                self.renew_shadows()
            return
        pthread_mutex_lock(&self.lock)
        self.opts = self.staged
        account = self.staged_account
        pthread_mutex_unlock(&self.lock)
        if self.connect_received or account != self.account:
            # A second CONNECT starts over: what was subscribed under the first is gone. And what was subscribed
            # without any, while that was allowed, is in the other account's sublist.
            self.remove_all_subs()
        self.account = account
        begin_message(self, &self.pa.m)
        self.apply_permissions()
        if ctl & CTL_IMPORTS:
            self.renew_shadows()
        store8(&self.headers, self.opts.headers)
        self.pedantic = self.opts.pedantic
        self.max_subs = self.opts.max_subs
        self.max_payload = self.opts.max_payload
        self.connect_received = 1
        self.auth_set = 0

    # -- verbs ---------------------------------------------------------------------------------------------------

    cdef int process_connect(self, char *arg, size_t n) noexcept nogil:
        timer_clear(&self.ps.timers, &self.auth_timer)
        storei64(&self.rtt, self.ps.now - self.start_time if self.ps.now > self.start_time else 1)
        self.set_first_ping_timer()
        return self.punt(EV_CONNECT, arg, n)

    cdef int process_info(self, char *arg, size_t n) noexcept nogil:
        return self.punt(EV_INFO, arg, n)

    cdef int punt(self, uint32_t kind, const char *arg, size_t n) noexcept nogil:
        """Leave a verb to the control plane, which has us go on: who cannot be asked closes us."""
        if not (<Inbox> self.inbox).post_data(kind, <void *> self, &self.source, 0, 0, arg, n):
            self.out_of_memory(READ_ERROR)
            return PARSE_CLOSED
        return PARSE_PUNT

    cdef int process_ping(self) noexcept nogil:
        cdef char *info
        if self.trace:
            self.trace_line(TRACE_IN, b"PING", 4, NULL, 0)
            self.trace_line(TRACE_OUT, b"PONG", 4, NULL, 0)
        self.queue_outbound(b"PONG\r\n", 6)
        storei64(&self.last_in, self.ps.now)
        if self.kind == CLIENT and self.connect_received and not self.first_pong_sent:
            pthread_mutex_lock(&self.lock)
            info = self.connect_info
            self.connect_info = NULL
            pthread_mutex_unlock(&self.lock)
            if info != NULL:
                self.queue_outbound(info, self.connect_info_len)
                free(info)
            store8(&self.first_pong_sent, 1)
        return go_on(self)

    cdef int process_pong(self) noexcept nogil:
        if self.trace:
            self.trace_line(TRACE_IN, b"PONG", 4, NULL, 0)
        self.ping_out = 0
        if self.rtt_start:
            storei64(&self.rtt, self.ps.now - self.rtt_start if self.ps.now > self.rtt_start else 1)
        return PARSE_OK

    cdef int process_err(self, char *arg, size_t n) noexcept nogil:
        self.log(LOG_CLIENT_ERROR, 0, arg, n)
        self.close_connection_nogil(PARSE_ERROR)
        return PARSE_CLOSED

    cdef int auth_violation(self) noexcept nogil:
        self.log(LOG_AUTH_VIOLATION, 0, NULL, 0)
        self.send_err(b"Authorization Violation")
        self.close_connection_nogil(AUTHENTICATION_VIOLATION)
        return PARSE_CLOSED

    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        cdef char[NUMBER_ROOM] limit
        if code == PARSER_OUT_OF_MEMORY:
            self.out_of_memory(READ_ERROR)
            return PARSE_CLOSED
        if code == OVER_MAX_PAYLOAD:
            self.trace_over_max_payload()
            n = put_number(limit, self.max_payload) - limit   # there is one
            data = limit
        if code == BAD_OPERATION:
            self.send_err(b"Unknown Protocol Operation")
        elif code == OVER_MAX_CONTROL_LINE:
            self.send_err(b"maximum control line exceeded")
        self.log(code, b, data, n if n < 512 else 512)
        if code == OVER_MAX_CONTROL_LINE:
            self.close_connection_nogil(MAX_CONTROL_LINE_EXCEEDED)
        elif code == OVER_MAX_PAYLOAD:
            self.send_err(b"Maximum Payload Violation")
            self.close_connection_nogil(MAX_PAYLOAD_EXCEEDED)
        self.close_connection_nogil(PROTOCOL_VIOLATION)
        return PARSE_CLOSED

    cdef int process_invalid_publish_subject(self) noexcept nogil:
        self.send_err(b"Invalid Publish Subject")
        return go_on(self)

    # -- subscriptions -------------------------------------------------------------------------------------------

    cdef Subscription *add_sub(
        self, char *subject, size_t sn, char *queue, size_t qn, char *sid, size_t n, int *error
    ) noexcept nogil:
        """A new subscription in the account; NULL and error[0] < 0 for an invalid subject, 0 without memory."""
        cdef Subscription *s = sub_new(<void *> self, self.kind, subject, sn, queue, qn, sid, n)
        error[0] = 0
        if s == NULL:
            return NULL
        s.internal = self.kind == SYSTEM or self.kind == JETSTREAM or self.kind == ACCOUNT
        return self.insert_sub(s, error)

    cdef Subscription *add_native_sub(
        self, const char *subject, size_t sn, const char *queue, size_t qn, const NativeSub *native, int *error
    ) noexcept nogil:
        cdef char[NUMBER_ROOM] sid
        cdef size_t n = put_number(sid, self.native_sids + 1) - sid
        cdef Subscription *s = sub_new(
            <void *> self, self.kind, subject, sn, queue, qn, sid, n, sizeof(NativeSub))
        error[0] = 0
        if s == NULL:
            return NULL
        self.native_sids += 1
        s.internal = 1
        s.flags = SUB_NATIVE
        native_sub(s)[0] = native[0]
        return self.insert_sub(s, error)

    cdef Subscription *insert_sub(self, Subscription *s, int *error) noexcept nogil:
        cdef bint added
        settle_before_subscribing()
        error[0] = (<Account> self.account).sublist.insert(s)
        if error[0] != SL_OK:
            free(sub_block(s))
            if error[0] == SL_NO_MEMORY:
                error[0] = 0
            return NULL
        pthread_mutex_lock(&self.lock)
        added = subtable_add(&self.subs, s)
        pthread_mutex_unlock(&self.lock)
        if not added:
            (<Account> self.account).sublist.remove(s)
            store8(&s.closed, 1)
            qs_retire(sub_block(s))
            return NULL
        bump64(&self.nsubs, 1)
        if unlikely(account_imports_streams(<Account> self.account)):
            self.add_shadows(<Account> self.account, s, False)
        return s

    cdef int process_sub(self, char *arg, size_t n) noexcept nogil:
        cdef Slice[3] args
        cdef Slice sid, queue
        cdef uint32_t count = split_line(arg, n, args, 3)
        cdef int error
        if count != 2 and count != 3:
            return self.violation(BAD_SUB_ARGS, 0, arg, n)
        sid = args[count - 1]
        queue.p = arg
        queue.n = 0
        if count == 3:
            queue = args[1]
        self.batch_subs += 1
        if (
            not self.may_subscribe(args[0].p, args[0].n, queue.p, queue.n)
            or (queue.n == 5 and memcmp(queue.p, b"_sys_", 5) == 0)
        ):
            self.refuse_subscription(&args[0], &queue, &sid)
            return go_on(self)
        if self.max_subs >= 0 and self.subs.n >= <uint32_t> self.max_subs:
            self.log(LOG_MAX_SUBSCRIPTIONS, 0, NULL, 0)
            self.send_err(b"maximum subscriptions exceeded")
            return go_on(self)
        if subtable_find(&self.subs, sid.p, sid.n) == NULL:
            if self.add_sub(args[0].p, args[0].n, queue.p, queue.n, sid.p, sid.n, &error) == NULL:
                if error == 0:
                    self.out_of_memory(READ_ERROR)
                    return PARSE_CLOSED
                self.send_err(b"Invalid Subject")
                return go_on(self)
        if self.opts.verbose:
            self.send_ok()
        return go_on(self)

    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil:
        cdef Slice[2] args
        cdef uint32_t count = split_line(arg, n, args, 2)
        cdef int64_t max = -1
        cdef Subscription *s
        cdef bint gone
        if count != 1 and count != 2:
            return self.violation(BAD_UNSUB_ARGS, 0, arg, n)
        if count == 2:
            max = parse_size(args[1].p, args[1].n)
        self.batch_subs += 1
        if self.opts.verbose:
            self.send_ok()
        s = subtable_find(&self.subs, args[0].p, args[0].n)
        if s != NULL:
            if max > 0 and max > loadi64(&s.nm):
                # Another poller may be delivering the last one: it sees max, or we see its count.
                pthread_mutex_lock(&self.lock)
                storei64(&s.max, max)
                gone = loadi64(&s.nm) >= max
                pthread_mutex_unlock(&self.lock)
                if gone:
                    self.unsubscribe(s)
            else:
                self.unsubscribe(s)
        return go_on(self)

    cdef void unsubscribe(self, Subscription *s) noexcept nogil:
        cdef uint32_t i
        pthread_mutex_lock(&self.lock)
        if not subtable_remove(&self.subs, s):
            pthread_mutex_unlock(&self.lock)
            return
        store8(&s.closed, 1)
        for i in range(self.nreap):
            if self.reap[i] == s:
                self.nreap -= 1
                self.reap[i] = self.reap[self.nreap]
                break
        pthread_mutex_unlock(&self.lock)
        if self.trace:
            self.trace_line(TRACE_DELSUB, sub_sid(s), s.sid_len, NULL, 0)
        bump64(&self.nsubs, <uint64_t> -1)
        self.drop_shadows(s)
        if depart(self, <Account> self.account, s):
            return
        (<Account> self.account).sublist.remove(s)
        self.forget_requests(<Account> self.account, s)
        qs_retire(sub_block(s))

    cdef void remove_all_subs(self) noexcept nogil:
        """In slices: a writer that holds the sublist for long holds up every poller."""
        cdef Subscription *chain
        cdef Subscription *s
        cdef Subscription *some[SLICE]
        cdef size_t n
        pthread_mutex_lock(&self.lock)
        chain = subtable_take(&self.subs)
        s = chain
        while s != NULL:
            store8(&s.closed, 1)
            s = s.next
        self.nreap = 0
        store64(&self.nsubs, 0)
        pthread_mutex_unlock(&self.lock)
        self.drop_all_shadows()
        while chain != NULL:
            n = 0
            while chain != NULL and n < SLICE:
                some[n] = chain
                chain = chain.next
                n += 1
            self.take_out(some, n)

    cdef void take_out(self, Subscription **subs, size_t n) noexcept nogil:
        cdef size_t i, staying = 0
        for i in range(n):
            if not depart(self, <Account> self.account, subs[i]):
                subs[staying] = subs[i]
                staying += 1
        (<Account> self.account).sublist.remove_batch(subs, staying)
        for i in range(staying):
            self.forget_requests(<Account> self.account, subs[i])
            qs_retire(sub_block(subs[i]))

    cdef bint has_many_subs(self) noexcept nogil:
        # The server's own clients go at once.
        return self.fd >= 0 and <uint64_t> self.subs.n + self.shadows.n > MANY

    cdef bint remove_some_subs(self) noexcept nogil:
        cdef Subscription *some[SOME]
        cdef size_t i, n
        if self.shadows.n:
            self.drop_some_shadows()
        else:
            pthread_mutex_lock(&self.lock)
            n = subtable_take_some(&self.subs, &self.leaving_at, some)
            for i in range(n):
                store8(&some[i].closed, 1)
            store64(&self.nsubs, self.subs.n)
            pthread_mutex_unlock(&self.lock)
            self.take_out(some, n)
        return self.shadows.n != 0 or self.subs.n != 0

    cdef void note_subs(self) noexcept nogil:
        self.last_nsubs = load64(&self.nsubs)
        if self.fd >= 0:
            self.last_subs = subtable_text(&self.subs, NOTED, &self.last_subs_len)

    # -- messages ------------------------------------------------------------------------------------------------

    cdef int process_inbound_msg(self) noexcept nogil:
        """Handle a whole message of this client."""
        cdef Message *m = &self.pa.m
        cdef Mappings *mappings
        cdef Message own
        if unlikely(m.hdr != 0) and may_be_traced(self, m):
            own = m[0]   # which may be changed
            return self.process_traced_msg(&own)
        mappings = account_mappings(<Account> self.account)
        if unlikely(mappings != NULL):
            own = m[0]
            return process_inbound_client_msg(self, &own, mappings)
        return process_inbound_client_msg(self, m, NULL)

    cdef int refuse_msg(self, const Message *m, int what) noexcept nogil:
        if m.trace != NULL:
            trace_refused(m.trace, what, &m.subject if what == REFUSED_SUBJECT else &m.reply)
        if what == REFUSED_SUBJECT:
            self.refuse_publish(&m.subject)
        else:
            self.send_err_quoting(
                b"Permissions Violation for Publish with Reply of ", m.reply.p, m.reply.n, NULL, NULL, 0)
            self.log(LOG_REPLY_VIOLATION, 0, m.reply.p, m.reply.n)
        return PARSE_OK

    cdef void map_subject(self, Message *m, Mappings *mappings) noexcept nogil:
        """Replace the subject that was published by the one it is mapped to, if it is."""
        cdef PollState *ps = self.ps
        cdef size_t n = 0
        cdef char *grown
        while True:
            if not select_mapped_subject(
                    mappings, m.subject.p, m.subject.n, &ps.rng, ps.mapped, ps.mapped_len, &n):
                return
            if n < ps.mapped_len:
                break
            grown = <char *> realloc(ps.mapped, n + 256)
            if grown == NULL:
                self.out_of_memory(READ_ERROR)
                m.subject.n = 0
                return
            ps.mapped = grown
            ps.mapped_len = n + 256
        if unlikely(self.trace):
            self.trace_in_mapping(&m.subject, ps.mapped, n)
        m.subject.p = ps.mapped
        m.subject.n = n
        m.line = NULL
        if unlikely(m.trace != NULL):
            trace_mapping(m.trace, &m.subject)

    cdef void trace_in_mapping(self, const Slice *subject, const char *to, size_t n) noexcept nogil:
        cdef size_t size = subject.n + strlen(b" -> ") + n
        cdef char *line = <char *> malloc(size)
        if line == NULL:
            return
        put(put_text(put(line, subject.p, subject.n), b" -> "), to, n)
        self.trace_line(TRACE_IN, b"MAPPING", strlen(b"MAPPING"), line, size)
        free(line)

    cdef int process_traced_msg(self, Message *m) noexcept nogil:
        cdef char[SIZES_ROOM] sizes
        cdef char *changed = NULL
        cdef bint disable = False
        cdef int result
        if init_msg_trace(self, m, &disable) == TRACE_SKIP:
            return go_on(self)
        if disable:
            changed = set_trace_dest(m, NULL, sizes)
        result = process_inbound_client_msg(self, m, account_mappings(<Account> self.account))
        free(changed)
        if m.trace != NULL:
            send_msg_trace(self, m.trace)
        return result

    cdef void trace_over_max_payload(self) noexcept nogil:
        """Trace a message over the largest payload, if what has come of its header asks for it."""
        cdef Message m = self.pa.m
        cdef bint disable = False
        if self.pa.hdr <= 0 or not self.rest.n:
            return
        m.data = self.rest.p
        m.n = <size_t> self.pa.size
        m.hdr = min(<size_t> self.pa.hdr, self.rest.n)
        if may_be_traced(self, &m) and init_msg_trace(self, &m, &disable) == TRACE_ON:
            trace_refused(m.trace, REFUSED_SIZE, &m.subject)
            send_msg_trace(self, m.trace)

    cdef void no_responders(self, const Message *m) noexcept nogil:
        """Nobody is there: tell a requester that wants to know, if it listens on its reply itself."""
        cdef MatchResult *r = (<Account> self.account).sublist.match(m.reply.p, m.reply.n)
        cdef size_t status = strlen(NO_RESPONDERS) + m.subject.n + strlen(b"\r\n\r\n")
        cdef uint32_t i
        cdef Subscription *s = NULL
        cdef char *line
        cdef char *p
        if r == NULL:
            self.out_of_memory(READ_ERROR)
            return
        for i in range(r.npsubs):
            if r.psubs[i].client == <void *> self and not load8(&r.psubs[i].closed):
                s = r.psubs[i]
                break
        free(r)
        if s == NULL:
            return
        line = <char *> malloc(
            strlen(b"HMSG   \r\n\r\n") + m.reply.n + s.sid_len + 2 * (1 + NUMBER_ROOM) + status)
        if line == NULL:
            self.out_of_memory(READ_ERROR)
            return
        p = put(put_text(line, b"HMSG "), m.reply.p, m.reply.n)
        p = put(put_text(p, b" "), sub_sid(s), s.sid_len)
        p = put_number(put_text(put_number(put_text(p, b" "), status), b" "), status)
        p = put(put_text(put_text(p, b"\r\n"), NO_RESPONDERS), m.subject.p, m.subject.n)
        p = put_text(put_text(p, b"\r\n\r\n"), b"\r\n")
        self.queue_outbound(line, p - line)
        free(line)


cdef inline void *sub_block(Subscription *s) noexcept nogil:
    """Where its memory begins."""
    return native_sub(s) if s.flags & SUB_NATIVE else <void *> s
