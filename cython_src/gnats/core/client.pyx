"""A client: verbs, subscriptions, messages; see client.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from gnats.core.account cimport (
    Account,
    StreamImport,
    account_imports_streams,
    account_mappings,
    import_sub,
    import_to,
)
from gnats.core.connection cimport (
    AUTHENTICATION_VIOLATION,
    CTL_CONNECTED,
    CTL_CLOSE,
    CTL_IMPORTS,
    CTL_PERMISSIONS,
    CTL_RESUME,
    LOG_AUTH_VIOLATION,
    LOG_AUTO_UNSUBSCRIBE,
    LOG_CLIENT_ERROR,
    LOG_CLOSING_OUT_OF_MEMORY,
    LOG_MAX_SUBSCRIPTIONS,
    LOG_REPLY_VIOLATION,
    MAX_CONTROL_LINE_EXCEEDED,
    MAX_PAYLOAD_EXCEEDED,
    PARSE_ERROR,
    PROTOCOL_VIOLATION,
    READ_ERROR,
    SLOW_CONSUMER_PENDING_BYTES,
    TRACE_DELSUB,
    TRACE_IN,
    TRACE_IN_PAYLOAD,
    TRACE_OUT,
    TRACE_OUT_PAYLOAD,
    WRITE_ERROR,
    end_batch,
)
from gnats.core.guard cimport CHECK_DELIVERIES, NOTE_REPLIES
from gnats.core.imports cimport Importer, transformed
from gnats.core.inbox cimport EV_CONNECT, EV_INFO, EV_MSG, Event, Inbox
from gnats.core.mappings cimport Mappings
from gnats.core.msgtrace cimport (
    EGRESS_AUTO_UNSUBSCRIBED,
    EGRESS_CLIENT_CLOSED,
    EGRESS_NO_ECHO,
    EGRESS_NO_STALL,
    EGRESS_OK,
    EGRESS_SUB_CLOSED,
    EGRESS_SUB_DENY,
    REFUSED_REPLY,
    REFUSED_SUBJECT,
    TRACE_SKIP,
    MsgTrace,
    set_trace_dest,
    trace_egress,
    trace_mapping,
    trace_refused,
    trace_stream_export,
)
from gnats.core.outbound cimport ChunkPool, OutQueue, outq_append, outq_commit, outq_reserve
from gnats.core.parser cimport (
    ACCOUNT,
    BAD_OPERATION,
    BAD_SUB_ARGS,
    BAD_UNSUB_ARGS,
    CLIENT,
    GATEWAY,
    JETSTREAM,
    LEAF,
    OVER_MAX_CONTROL_LINE,
    OVER_MAX_PAYLOAD,
    PARSE_CLOSED,
    PARSE_OK,
    PARSE_PUNT,
    ROUTER,
    SYSTEM,
    PubArg,
    Slice,
    parse_size,
)
from gnats.core.permissions cimport Permissions
from gnats.core.pollstate cimport PollState, poller_random
from gnats.core.quiesce cimport QsParticipant, qs_offline, qs_online, qs_register, qs_retire, qs_unregister
from gnats.core.results cimport results_match
from gnats.core.state cimport ServerState
from gnats.core.sublist cimport (
    SL_OK,
    SUB_SHADOW,
    MatchResult,
    QueueGroup,
    Subscription,
    sub_new,
    sub_queue,
    sub_row,
    sub_sid,
    sub_subject,
)
from gnats.core.subtable cimport subtable_add, subtable_find, subtable_remove, subtable_take, subtable_text
from gnats.core.timers cimport timer_clear
from gnats.includes.atomics cimport (
    addi64_seq,
    bump64,
    load8,
    load8_acquire,
    load64,
    loadi64,
    store8,
    store8_release,
    store64,
    storei64,
    unlikely,
)
from gnats.includes.linux cimport monotonic_ns
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    LARGE_CHUNK = 65504            # what fits one chunk; a longer message is spread over several
    SCRATCH = 96                   # of a message header beside subject and reply
    SLICE = 256                    # subscriptions removed under one lock
    NOTED = 32768                  # bytes of a closed connection's subscriptions that monitoring can show
    FEW_IMPORTS = 16               # imports that match one subject and need no memory but the stack's


cdef inline bint has_prefix(const Slice *s, const char *prefix, size_t n) noexcept nogil:
    return s.n > n and memcmp(s.p, prefix, n) == 0


cdef inline bint is_gateway_reply(const Slice *s) noexcept nogil:
    return has_prefix(s, b"_GR_.", 5) or has_prefix(s, b"$GR.", 4)


cdef inline bint is_reserved_reply(const Slice *reply) noexcept nogil:
    # service imports, JetStream acknowledgements, gateway replies
    if reply.p[0] == c'_':
        return (reply.n > 3 and memcmp(reply.p, b"_R_.", 4) == 0) or is_gateway_reply(reply)
    return reply.p[0] == c'$' and (has_prefix(reply, b"$JS.ACK.", 8) or is_gateway_reply(reply))


cdef inline int go_on(Client c) noexcept nogil:
    """What a handler returns: the parser stops once we are closing."""
    return PARSE_CLOSED if load8(&c.closing) else PARSE_OK


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


cdef class Client(Importer):
    """A connection that speaks the protocol, or one of the server's own subscribers; see Connection."""

    def __dealloc__(self):
        self.remove_all_subs()
        free(self.reap)

    # -- what Python calls ---------------------------------------------------------------------------------------

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
        `permissions` None means all, -1 no limit. Raises MemoryError.
        """
        cdef char *copy = NULL
        cdef size_t n = PyBytes_GET_SIZE(connect_info)
        self.append_remote(greeting)
        if protocol >= 1 and not self.first_pong_sent and n:
            copy = <char *> malloc(n)
            if copy == NULL:
                raise MemoryError
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
        cdef bytes msg = hdr + payload + b"\r\n"
        cdef bytes hdb = b"%d" % len(hdr)
        cdef bytes szb = b"%d" % (len(msg) - 2)
        cdef bint delivered
        self.pa.subject.p = PyBytes_AS_STRING(subject)
        self.pa.subject.n = PyBytes_GET_SIZE(subject)
        self.pa.reply.p = PyBytes_AS_STRING(reply) if reply is not None else NULL
        self.pa.reply.n = PyBytes_GET_SIZE(reply) if reply is not None else 0
        self.pa.hdb.p = PyBytes_AS_STRING(hdb)
        self.pa.hdb.n = PyBytes_GET_SIZE(hdb)
        self.pa.szb.p = PyBytes_AS_STRING(szb)
        self.pa.szb.n = PyBytes_GET_SIZE(szb)
        self.pa.size = <int32_t> (PyBytes_GET_SIZE(msg) - 2)
        self.pa.hdr = <int32_t> PyBytes_GET_SIZE(hdr) if hdr else -1
        self.pa.canonical = 0
        qs_online(&self.ps.qs)
        self.ps.now = monotonic_ns()
        delivered = self.route_msg(PyBytes_AS_STRING(msg), PyBytes_GET_SIZE(msg))
        end_batch(self.ps)
        qs_offline(&self.ps.qs)
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
        self.apply_permissions()
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
        (<Inbox> self.inbox).post_data(EV_CONNECT, <void *> self, 0, 0, arg, n)
        return PARSE_PUNT

    cdef int process_info(self, char *arg, size_t n) noexcept nogil:
        (<Inbox> self.inbox).post_data(EV_INFO, <void *> self, 0, 0, arg, n)
        return PARSE_PUNT

    cdef int process_ping(self) noexcept nogil:
        cdef char *info
        if self.trace:
            self.trace_line(TRACE_IN, b"PING", 4, NULL, 0)
            self.trace_line(TRACE_OUT, b"PONG", 4, NULL, 0)
        self.queue_outbound(b"PONG\r\n", 6)
        storei64(&self.last_in, self.ps.now)
        if self.kind == CLIENT and self.connect_received and not self.first_pong_sent:
            self.first_pong_sent = 1
            pthread_mutex_lock(&self.lock)
            info = self.connect_info
            self.connect_info = NULL
            pthread_mutex_unlock(&self.lock)
            if info != NULL:
                self.queue_outbound(info, self.connect_info_len)
                free(info)
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
        cdef char[16] limit
        if code == OVER_MAX_PAYLOAD:
            n = snprintf(limit, sizeof(limit), b"%d", self.max_payload)
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
        cdef bint added
        error[0] = 0
        if s == NULL:
            return NULL
        s.internal = self.kind == SYSTEM or self.kind == JETSTREAM or self.kind == ACCOUNT
        error[0] = (<Account> self.account).sublist.insert(s)
        if error[0] != SL_OK:
            free(s)
            return NULL
        pthread_mutex_lock(&self.lock)
        added = subtable_add(&self.subs, s)
        pthread_mutex_unlock(&self.lock)
        if not added:
            (<Account> self.account).sublist.remove(s)
            store8(&s.closed, 1)
            qs_retire(s)
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
                    self.log(LOG_CLOSING_OUT_OF_MEMORY, 0, NULL, 0)
                    self.close_connection_nogil(READ_ERROR)
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
        (<Account> self.account).sublist.remove(s)
        self.drop_shadows(s)
        self.forget_requests(<Account> self.account, s)
        qs_retire(s)

    cdef void remove_all_subs(self) noexcept nogil:
        """In slices: a writer that holds the sublist for long holds up every poller."""
        cdef Subscription *chain
        cdef Subscription *s
        cdef Subscription *some[SLICE]
        cdef size_t n, i
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
            (<Account> self.account).sublist.remove_batch(some, n)
            for i in range(n):
                self.forget_requests(<Account> self.account, some[i])
                qs_retire(some[i])

    cdef void note_subs(self) noexcept nogil:
        self.last_nsubs = load64(&self.nsubs)
        if self.fd >= 0:
            self.last_subs = subtable_text(&self.subs, NOTED, &self.last_subs_len)

    # -- messages ------------------------------------------------------------------------------------------------

    cdef int process_inbound_msg(self, char *msg, size_t n) noexcept nogil:
        """A whole message of this client, its arguments in `pa` (processInboundClientMsg)."""
        cdef PubArg *pa = &self.pa
        cdef Mappings *mappings = account_mappings(<Account> self.account)
        if unlikely(pa.hdr > 0) and self.may_be_traced(msg):
            return self.process_traced_msg(msg, n)
        self.batch_msgs += 1
        self.batch_bytes += n - 2
        if unlikely(mappings != NULL):
            self.map_subject(mappings)   # what follows knows the new subject only
            if unlikely(self.mt != NULL) and pa.subject.p == self.ps.mapped:
                trace_mapping(self.mt, &pa.subject)
        if self.trace:
            self.trace_msg(TRACE_IN_PAYLOAD, msg, n, pa.hdr if pa.hdr > 0 else 0)
        if unlikely(pa.subject.n and (pa.subject.p[0] == c'_' or pa.subject.p[0] == c'$')):
            if is_gateway_reply(&pa.subject) or (
                pa.subject.n >= 5 and memcmp(pa.subject.p, b"$NRG.", 5) == 0
                and not load8(&(<Account> self.account)._is_system)
            ):
                return self.refuse_msg(REFUSED_SUBJECT)
        if unlikely(self.permissions != NULL) and not self.may_publish(&pa.subject):
            return self.refuse_msg(REFUSED_SUBJECT)
        if pa.reply.p != NULL and is_reserved_reply(&pa.reply):
            return self.refuse_msg(REFUSED_REPLY)
        if unlikely(self.opts.verbose):
            self.send_ok()
        self.route_msg(msg, n)
        return PARSE_OK

    cdef int refuse_msg(self, int what) noexcept nogil:
        cdef PubArg *pa = &self.pa
        if self.mt != NULL:
            trace_refused(self.mt, what, &pa.subject if what == REFUSED_SUBJECT else &pa.reply)
        if what == REFUSED_SUBJECT:
            self.refuse_publish(&pa.subject)
        else:
            self.send_err_quoting(
                b"Permissions Violation for Publish with Reply of ", pa.reply.p, pa.reply.n, NULL, NULL, 0)
            self.log(LOG_REPLY_VIOLATION, 0, pa.reply.p, pa.reply.n)
        return PARSE_OK

    cdef int process_traced_msg(self, char *msg, size_t n) noexcept nogil:
        cdef char[24] sizes
        cdef char *changed = NULL
        cdef bint disable = False
        cdef int result = PARSE_OK
        if self.init_msg_trace(msg, &disable) == TRACE_SKIP:
            return go_on(self)
        if disable:
            changed = set_trace_dest(&self.pa, msg, &n, NULL, sizes)
        self.traced = 1
        result = self.process_inbound_msg(changed if changed != NULL else msg, n)
        self.traced = 0
        free(changed)
        if self.mt != NULL:
            self.send_msg_trace()
        return result

    cdef bint route_msg(self, char *msg, size_t n) noexcept nogil:
        """Deliver to whoever is subscribed; True when somebody was."""
        cdef PubArg *pa = &self.pa
        cdef MatchResult *r = results_match(
            &self.ps.cache, (<Account> self.account).sublist, pa.subject.p, pa.subject.n)
        cdef bint delivered = False
        if unlikely(r == NULL):
            self.log(LOG_CLOSING_OUT_OF_MEMORY, 0, NULL, 0)
            self.close_connection_nogil(READ_ERROR)
            return False
        if r.npsubs or r.nqgroups:
            delivered = self.process_msg_results(r, msg, n)
        if not delivered and pa.reply.p != NULL and self.opts.no_responders:
            self.no_responders()
        return delivered

    cdef bint process_msg_results(self, MatchResult *r, char *msg, size_t n) noexcept nogil:
        cdef Delivery full, bare
        cdef uint32_t i, k, start
        cdef uint64_t delivered = 0   # to clients: what the server itself hears is not counted
        cdef bint received = False, traced = self.mt != NULL
        cdef QueueGroup *group
        cdef Subscription *s
        cdef Subscription *few[FEW_IMPORTS]
        cdef Subscription **imports = few
        cdef uint32_t nimports = 0
        full.pre = NULL
        bare.pre = NULL
        for i in range(r.npsubs):
            s = r.psubs[i]
            if unlikely(s.flags != 0):
                if s.flags == SUB_SHADOW:
                    if self.deliver_shadow(s, msg, n, &full, &bare):
                        received = 1
                        delivered += not s.internal
                    continue
                if nimports == FEW_IMPORTS and imports == few:
                    imports = <Subscription **> malloc(r.npsubs * sizeof(Subscription *))
                    if imports == NULL:
                        imports = few
                        break
                    memcpy(imports, few, sizeof(few))
                imports[nimports] = s
                nimports += 1
                continue
            if (
                self.deliver_traced(s, msg, n, &full, &bare) if unlikely(traced)
                else self.deliver_msg(s, msg, n, &full, &bare)
            ):
                received = 1
                delivered += not s.internal
        for k in range(r.nqgroups):
            group = &r.qgroups[k]
            start = poller_random(self.ps) % group.n if group.n > 1 else 0
            # the first member from a random one on that can take it
            for i in range(group.n):
                s = group.subs[(start + i) % group.n]
                if unlikely(s.flags != 0):
                    if not self.deliver_shadow(s, msg, n, &full, &bare):
                        continue
                elif unlikely(traced):
                    if not self.deliver_traced(s, msg, n, &full, &bare):
                        continue
                elif not self.deliver_msg(s, msg, n, &full, &bare):
                    continue
                received = 1
                delivered += not s.internal
                break
        if delivered:
            bump64(&self.ps.out_msgs, delivered)
            bump64(&self.ps.out_bytes, delivered * (n - 2))
        if unlikely(nimports != 0):
            # Last: what they deliver may replace the result and the memory that were used up to here.
            if self.deliver_imports(imports, nimports, msg, n):
                received = 1
            if imports != few:
                free(imports)
        return received

    cdef bint deliver_shadow(
        self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        """Deliver to a subscription that imports what is published here, by the subject it knows it under."""
        cdef char[256] few
        cdef char *subject = NULL
        cdef PubArg *pa = &self.pa
        cdef Slice published = pa.subject
        cdef uint8_t canonical = pa.canonical
        cdef StreamImport *im = <StreamImport *> import_sub(s).what
        cdef Delivery own_full, own_bare
        cdef bint delivered
        if self.hop != NULL:
            return False   # what has come through a service import does not leave as a stream
        if im.use_published:
            return self.deliver_export(s, im, msg, n, full, bare)
        if im.tr != NULL:
            subject = transformed(im.tr, &published, &self.ps.rng, few, sizeof(few), &pa.subject.n)
            if subject == NULL:
                pa.subject = published
                return False
            pa.subject.p = subject
        else:
            pa.subject.p = <char *> import_to(im)
            pa.subject.n = im.to_n
        pa.canonical = 0
        own_full.pre = own_bare.pre = NULL
        delivered = self.deliver_export(s, im, msg, n, &own_full, &own_bare)
        full.pre = bare.pre = NULL   # they may have been in the memory that was used now
        pa.subject = published
        pa.canonical = canonical
        if subject != few:
            free(subject)
        return delivered

    cdef bint deliver_export(
        self, Subscription *s, StreamImport *im, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        cdef MsgTrace *t = self.mt
        cdef bint delivered
        if t == NULL:
            return self.deliver_msg(s, msg, n, full, bare)
        trace_stream_export(t, &(<Account> im.owner).info_name, &self.pa.subject)
        if im.allow_trace:
            return self.deliver_traced(s, msg, n, full, bare)
        if t.only:
            return True
        self.mt = NULL
        delivered = self.deliver_msg(s, msg, n, full, bare)
        self.mt = t
        return delivered

    cdef bint deliver_traced(
        self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        """deliver_msg() that notes what becomes of the message, and may do no more than that."""
        cdef MsgTrace *t = self.mt
        cdef Slice subject, queue
        cdef int64_t max
        cdef int error = EGRESS_OK
        cdef bint delivered = False
        if s.internal:
            return self.deliver_msg(s, msg, n, full, bare)
        if s.client == <void *> self and not self.opts.echo:
            error = EGRESS_NO_ECHO
        elif load8(&(<Client> s.client).checks) & CHECK_DELIVERIES and (
                (<Client> s.client).delivery_denied(self.ps, &self.pa.subject, s)):
            error = EGRESS_SUB_DENY
        elif load8(&s.closed):
            error = EGRESS_SUB_CLOSED
        elif t.only:
            delivered = True
        else:
            delivered = self.deliver_msg(s, msg, n, full, bare)
            max = loadi64(&s.max)
            if delivered:
                pass
            elif max > 0 and loadi64(&s.nm) > max:
                error = EGRESS_AUTO_UNSUBSCRIBED
            elif load8(&(<Client> s.client).gated) and load8(&(<ServerState> self.server)._no_stall):
                error = EGRESS_NO_STALL
            else:
                error = EGRESS_CLIENT_CLOSED
        subject.p = <char *> sub_subject(s)
        subject.n = s.subject_len
        queue.p = <char *> sub_queue(s)
        queue.n = s.queue_len
        trace_egress(t, (<Client> s.client).cid, &subject, &queue, error)
        return delivered

    cdef bint deliver_msg(
        self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        cdef Delivery *d = full
        cdef int64_t nm, max
        cdef bint strip, delivered
        if s.client == <void *> self and not self.opts.echo:
            return False
        if unlikely(load8(&s.closed)):
            return False
        if unlikely(s.kind == ROUTER or s.kind == GATEWAY or s.kind == LEAF):
            return False   # no such connection exists before there are clusters
        if s.internal:
            addi64_seq(&s.nm, 1)
            return self.deliver_internal(<Client> s.client, s, msg, n)
        if unlikely(load8(&(<Client> s.client).checks) & CHECK_DELIVERIES):
            if (<Client> s.client).delivery_denied(self.ps, &self.pa.subject, s):
                return False
        strip = self.pa.hdr > 0 and not load8(&(<Client> s.client).headers)
        if strip:
            d = bare
        if d.pre == NULL:
            self.delivery(d, msg, n, strip)
            if d.pre == NULL:
                return False
        if (<Client> s.client).ps != self.ps:
            return (<Client> s.client).deliver_remote(self, s, d)
        if self.ps.solo:
            nm = loadi64(&s.nm) + 1
            storei64(&s.nm, nm)
        else:
            nm = addi64_seq(&s.nm, 1) + 1
        max = loadi64(&s.max)
        if unlikely(max > 0 and nm > max):
            return False   # another poller delivered the last; it is about to be taken out
        delivered = (<Client> s.client).deliver_local(self, s, d)
        if unlikely(max > 0 and nm == max):
            (<Client> s.client).debugf(LOG_AUTO_UNSUBSCRIBE, max, sub_sid(s), s.sid_len)
            (<Client> s.client).unsubscribe(s)
        return delivered

    cdef void delivery(self, Delivery *d, char *msg, size_t n, bint bare) noexcept nogil:
        """What all subscribers of a kind are sent but for the sid. `bare` is without the header."""
        cdef PubArg *pa = &self.pa
        cdef PollState *ps = self.ps
        cdef size_t room = pa.subject.n + pa.reply.n + SCRATCH
        cdef char *p
        cdef bint header = pa.hdr > 0 and not bare
        cdef Slice *first
        if pa.canonical and not bare and (pa.hdb.p == NULL or header):
            # "PUB subject ..." in the read buffer becomes "MSG subject ", and from its reply or size on it can go
            # out as it came in.
            p = pa.line
            if header:
                p[0] = c'H'
                p += 1
            memcpy(p, b"MSG", 3)
            first = &pa.reply if pa.reply.p != NULL else (&pa.hdb if header else &pa.szb)
            d.pre = pa.line
            d.pre_n = pa.subject.p + pa.subject.n + 1 - pa.line
            d.mid = NULL
            d.mid_n = 0
            d.pay = first.p
            d.pay_n = msg + n - first.p
            d.hdr = pa.hdr if header else 0
            d.size = n - 2
            return
        if ps.scratch_len < 2 * room:
            free(ps.scratch)
            ps.scratch = <char *> malloc(2 * room)
            ps.scratch_len = 2 * room if ps.scratch != NULL else 0
            if ps.scratch == NULL:
                return
        p = ps.scratch + (room if bare else 0)
        d.pre = p
        if header:
            p[0] = c'H'
            p += 1
        memcpy(p, b"MSG ", 4)
        p += 4
        memcpy(p, pa.subject.p, pa.subject.n)
        p += pa.subject.n
        p[0] = c' '
        p += 1
        d.pre_n = p - d.pre
        d.mid = p
        if pa.reply.p != NULL:
            memcpy(p, pa.reply.p, pa.reply.n)
            p += pa.reply.n
            p[0] = c' '
            p += 1
        d.pay = msg
        d.pay_n = n
        d.hdr = pa.hdr if header else 0
        if bare:
            p += snprintf(p, 16, b"%d", pa.size - pa.hdr)
            d.pay += pa.hdr
            d.pay_n -= pa.hdr
        else:
            if header:
                memcpy(p, pa.hdb.p, pa.hdb.n)
                p += pa.hdb.n
                p[0] = c' '
                p += 1
            memcpy(p, pa.szb.p, pa.szb.n)
            p += pa.szb.n
        memcpy(p, b"\r\n", 2)
        d.mid_n = p + 2 - d.mid
        d.size = d.pay_n - 2

    cdef bint deliver_local(self, Client producer, const Subscription *s, const Delivery *d) noexcept nogil:
        """Queue a message to us, a connection of the calling poller."""
        cdef size_t total = d.pre_n + s.sid_len + 1 + d.mid_n + d.pay_n
        cdef char *p
        if unlikely(load8(&self.closing)):
            return False
        if unlikely(load8(&self.gated)) and load8(&(<ServerState> self.server)._no_stall):
            if producer.kind == CLIENT:
                return False
        # Whoever published this has not sent it before it was read: what is queued now is all that can have caused it.
        if self.remote_seen != self.ps.reads:
            self.remote_seen = self.ps.reads
            if load8_acquire(&self.has_remote):
                self.take_remote()
        p = outq_reserve(&self.out, &self.ps.pool, total) if total <= LARGE_CHUNK else NULL
        if p != NULL:
            put_message(p, s, d)
            outq_commit(&self.out, total)
        elif append_message(&self.out, &self.ps.pool, s, d) < 0:
            self.log(LOG_CLOSING_OUT_OF_MEMORY, 0, NULL, 0)
            self.close_connection_nogil(WRITE_ERROR)
            return False
        bump64(&self.out_msgs, 1)
        bump64(&self.out_bytes, d.size)
        if unlikely(self.checks & NOTE_REPLIES) and producer.pa.reply.p != NULL:
            pthread_mutex_lock(&self.lock)
            self.note_reply(self.ps, &producer.pa.reply)
            pthread_mutex_unlock(&self.lock)
        if not self.dirty:
            self.dirty = 1
            self.dirty_next = self.ps.dirty
            self.ps.dirty = <void *> self
        if unlikely(self.trace):
            self.trace_out(s, d)
        if unlikely(self.out.bytes > self.flush_over):
            self.outbound_over(producer)
        return True

    cdef bint deliver_remote(self, Client producer, Subscription *s, const Delivery *d) noexcept nogil:
        """Queue a message to us, a connection of another poller than the producer's."""
        cdef size_t total = d.pre_n + s.sid_len + 1 + d.mid_n + d.pay_n
        cdef size_t pending
        cdef int64_t nm, max
        cdef char *p
        cdef bint wake = False, over = False, dropped
        pthread_mutex_lock(&self.lock)
        # Counted under the lock: whoever counts the last message knows that those before it are queued.
        max = loadi64(&s.max)
        if self.refused or load8(&s.closed):
            pthread_mutex_unlock(&self.lock)
            return False
        nm = addi64_seq(&s.nm, 1) + 1
        if max > 0 and nm > max:
            pthread_mutex_unlock(&self.lock)
            return False
        dropped = (
            load8(&self.gated) and producer.kind == CLIENT and load8(&(<ServerState> self.server)._no_stall))
        if not dropped:
            wake = self.remote.head == NULL
            p = outq_reserve(&self.remote, &producer.ps.pool, total) if total <= LARGE_CHUNK else NULL
            if p != NULL:
                put_message(p, s, d)
                outq_commit(&self.remote, total)
            elif append_message(&self.remote, &producer.ps.pool, s, d) < 0:
                wake = self.refuse_more(WRITE_ERROR)
            store8_release(&self.has_remote, 1)
            self.remote_msgs += 1
            self.remote_bytes += d.size
            if unlikely(load8(&self.checks) & NOTE_REPLIES) and producer.pa.reply.p != NULL:
                self.note_reply(producer.ps, &producer.pa.reply)
            pending = load64(&self.backlog) + self.remote.bytes
            if pending > self.max_pending:
                wake = self.refuse_more(SLOW_CONSUMER_PENDING_BYTES)
            elif pending > self.gate:
                over = wake = True
            if unlikely(producer.trace):
                self.trace_out(s, d)
        if max > 0 and nm == max:
            wake = True
            store8(&s.closed, 1)
            if not self.reap_later(s):
                self.refuse_more(WRITE_ERROR)
        pthread_mutex_unlock(&self.lock)
        if over:
            self.stall(producer)
        if wake:
            producer.touch(self)
        return not dropped

    cdef bint refuse_more(self, uint32_t reason) noexcept nogil:
        """Have the owner close us; the lock is held."""
        self.refused = 1
        self.ctl |= CTL_CLOSE
        self.ctl_reason = reason
        return True

    cdef bint reap_later(self, Subscription *s) noexcept nogil:
        """Leave an exhausted subscription for the owner to take out; the lock is held."""
        cdef uint32_t cap
        cdef Subscription **grown
        if self.nreap == self.reap_cap:
            cap = self.reap_cap * 2 if self.reap_cap else 8
            grown = <Subscription **> realloc(self.reap, cap * sizeof(Subscription *))
            if grown == NULL:
                return False
            self.reap = grown
            self.reap_cap = cap
        self.reap[self.nreap] = s
        self.nreap += 1
        return True

    cdef void touch(self, Client dest) noexcept nogil:
        """`dest`, of another poller, is to be signalled at the end of our batch."""
        cdef PollState *ps = self.ps
        cdef uint32_t cap
        cdef void **grown
        if ps.ntouched == ps.touched_cap:
            cap = ps.touched_cap * 2 if ps.touched_cap else 64
            grown = <void **> realloc(ps.touched, cap * sizeof(void *))
            if grown == NULL:
                dest.signal_owner()
                return
            ps.touched = grown
            ps.touched_cap = cap
        ps.touched[ps.ntouched] = <void *> dest
        ps.ntouched += 1

    cdef bint deliver_internal(self, Client dest, const Subscription *s, char *msg, size_t n) noexcept nogil:
        """Post a message to a subscriber in the server itself."""
        cdef PubArg *pa = &self.pa
        cdef size_t hdr = pa.hdr if pa.hdr > 0 else 0
        cdef Event *ev = (<Inbox> dest.inbox).new_event(
            EV_MSG, <void *> dest, pa.subject.n + pa.reply.n + n - 2 + s.sid_len)
        cdef char *p
        if ev == NULL:
            return False
        ev.a = <int64_t> self.cid
        ev.part[0] = <uint32_t> pa.subject.n
        ev.part[1] = <uint32_t> pa.reply.n
        ev.part[2] = <uint32_t> hdr
        ev.part[3] = <uint32_t> (n - 2 - hdr)
        p = ev.data
        memcpy(p, pa.subject.p, pa.subject.n)
        p += pa.subject.n
        if pa.reply.p != NULL:
            memcpy(p, pa.reply.p, pa.reply.n)
            p += pa.reply.n
        memcpy(p, msg, n - 2)
        memcpy(p + n - 2, sub_sid(s), s.sid_len)
        (<Inbox> dest.inbox).post(ev)
        return True

    cdef void no_responders(self) noexcept nogil:
        """Nobody is there: tell a requester that wants to know, if it listens on its reply itself."""
        cdef PubArg *pa = &self.pa
        cdef MatchResult *r = (<Account> self.account).sublist.match(pa.reply.p, pa.reply.n)
        cdef size_t room = pa.reply.n + pa.subject.n + 128
        cdef uint32_t i
        cdef Subscription *s = NULL
        cdef char *line
        cdef char *p
        if r == NULL:
            return
        for i in range(r.npsubs):
            if r.psubs[i].client == <void *> self:
                s = r.psubs[i]
                break
        free(r)
        if s == NULL:
            return
        line = <char *> malloc(room + s.sid_len)
        if line == NULL:
            return
        # by hand rather than by printf: a subject may hold any byte
        p = put(put(put(line, b"HMSG ", 5), pa.reply.p, pa.reply.n), b" ", 1)
        p = put(p, sub_sid(s), s.sid_len)
        p += snprintf(p, 96, b" %zu %zu\r\nNATS/1.0 503\r\nNats-Subject: ", 32 + pa.subject.n, 32 + pa.subject.n)
        p = put(put(p, pa.subject.p, pa.subject.n), b"\r\n\r\n\r\n", 6)
        self.queue_outbound(line, p - line)
        free(line)

    cdef void trace_out(self, const Subscription *s, const Delivery *d) noexcept nogil:
        cdef size_t n = d.pre_n + s.sid_len + 1 + d.mid_n
        cdef char *line
        if d.mid_n == 0:
            return
        line = <char *> malloc(n)
        if line == NULL:
            return
        memcpy(line, d.pre, d.pre_n)
        memcpy(line + d.pre_n, sub_sid(s), s.sid_len)
        line[d.pre_n + s.sid_len] = c' '
        memcpy(line + d.pre_n + s.sid_len + 1, d.mid, d.mid_n)
        self.trace_line(TRACE_OUT, line, n - 2, NULL, 0)
        free(line)
        self.trace_msg(TRACE_OUT_PAYLOAD, d.pay, d.pay_n, d.hdr)

cdef inline char *put(char *p, const char *text, size_t n) noexcept nogil:
    memcpy(p, text, n)
    return p + n


cdef inline void put_message(char *p, const Subscription *s, const Delivery *d) noexcept nogil:
    memcpy(p, d.pre, d.pre_n)
    p += d.pre_n
    memcpy(p, sub_sid(s), s.sid_len)
    p += s.sid_len
    p[0] = c' '
    p += 1
    if d.mid_n:
        memcpy(p, d.mid, d.mid_n)
        p += d.mid_n
    memcpy(p, d.pay, d.pay_n)


cdef int append_message(OutQueue *q, ChunkPool *pool, const Subscription *s, const Delivery *d) noexcept nogil:
    if outq_append(q, pool, d.pre, d.pre_n) < 0 or outq_append(q, pool, sub_sid(s), s.sid_len) < 0:
        return -1
    if outq_append(q, pool, b" ", 1) < 0 or outq_append(q, pool, d.mid, d.mid_n) < 0:
        return -1
    return outq_append(q, pool, d.pay, d.pay_n)
