"""The session of a leaf node; see leaf_session.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.accounts.account cimport Account, account_mappings
from gnats.core.accounts.guard cimport (
    CHECK_DELIVERIES,
    CHECK_DENIALS,
    guard_denials,
    guard_install,
    guard_next,
    may_reply,
)
from gnats.core.accounts.imports cimport renew_shadows, weigh_shadows
from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.accounts.subscriber cimport CTL_IMPORTS, CTL_PERMISSIONS, Subscriber
from gnats.core.accounts.subscriptions cimport add_remote_sub, unsubscribe
from gnats.core.auth.permissions cimport Permissions
from gnats.core.links.audience cimport note_for_leaf
from gnats.core.links.link cimport ANNOUNCE_ALL, ANNOUNCE_READY, ANNOUNCE_TURN, link_announce, link_begin, link_init
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
from gnats.core.messages.encode cimport FORM_RHMSG, FORM_RMSG
from gnats.core.messages.message cimport SIZES_ROOM, Message, RemoteArgs
from gnats.core.messages.msgtrace cimport trace_free
from gnats.core.messages.reserved cimport (
    is_gateway_reply,
    is_jetstream_ack,
    is_mapped_reply,
    is_service_reply,
    plain_reply,
)
from gnats.core.net.connection cimport (
    CTL_RESUME,
    DENIED_PUBLISH,
    PROTOCOL_VIOLATION,
    READ_ERROR,
    WRITE_ERROR,
    Connection,
    SessionType,
)
from gnats.core.net.log_records cimport (
    LOG_INVALID_REMOTE_SUB,
    LOG_MAX_SUBSCRIPTIONS,
    LOG_PUBLISH_VIOLATION,
    TRACE_IN_PAYLOAD,
)
from gnats.core.net.pollstate cimport PollerBase, hand_over_first
from gnats.core.pings cimport set_first_ping_timer
from gnats.core.protocol.answers cimport send_denied as send_denial
from gnats.core.protocol.answers cimport send_err
from gnats.core.protocol.parser cimport (
    BAD_REMOTE_SUB_ARGS,
    BAD_REMOTE_UNSUB_ARGS,
    CONNECT_OR_INFO,
    PARSE_CLOSED,
    PARSE_PUNT,
    ParserHandlers,
)
from gnats.core.protocol.words cimport parse_size, split_line
from gnats.core.publishing cimport begin_message, map_published
from gnats.core.routing.gateway_return cimport take_answer
from gnats.core.routing.origins cimport is_loop_subject
from gnats.core.routing.route cimport ROUTE_NO_MEMORY, route
from gnats.core.routing.tracing cimport TRACE_SKIP, init_msg_trace, may_be_traced, send_msg_trace, set_trace_dest
from gnats.core.runtime.const cimport MAX_CONTROL_LINE_SIZE
from gnats.core.runtime.inbox cimport EV_BEGUN, EV_LEAF
from gnats.core.runtime.kinds cimport LEAF
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.sessioninput cimport go_on, input_init
from gnats.core.subjects.digest cimport MOST_WEIGHT
from gnats.core.subjects.interest_queue cimport InterestChange, change_queue, change_subject
from gnats.core.subjects.subject cimport same_bytes, subject_has_wildcard
from gnats.core.subjects.sublist cimport Subscription, sub_subject
from gnats.core.subjects.subtable cimport subtable_find
from gnats.core.textsession cimport session_expired, start_auth_timer
from gnats.includes.atomics cimport load64, load8, store8, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text

cdef enum:
    CTL_MAPPED = LINK_CTL           # set_mapped()
    MOST_WORDS = 3                  # subject, queue group, weight

cdef SessionType LEAF_SESSION
cdef ParserHandlers VERBS


cdef class LeafSession(LinkSession):
    """A connection to a hub or to a leaf node; see Connection. `kind` is LEAF.

    Sizes are in bytes, -1 for no limit; `write_deadline` and `ping_interval` in seconds. With `negotiates`, the peer
    may send an INFO before its CONNECT. PINGs are sent from join() on.
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
        int max_payload=-1,
        bint negotiates=False,
        **_session,
    ):
        self.session = &LEAF_SESSION
        input_init(&self.input, kind, &VERBS, <void *> self)
        self.input.parser.max_control_line = max_control_line
        self.input.parser.max_payload = max_payload
        self.form = FORM_RMSG
        self.info_first = negotiates
        self.unsettled = 0
        self.max_subs = -1
        link_init(&self.link, self, registry, MOST_INTEREST, carries, write_change, note_for_leaf)
        begin_message(self, &self.input.parser.pa.m)

    def __dealloc__(self):
        if self.session != NULL:   # else __cinit__ failed before it set anything up
            link_session_free(self)
        free(self.mapped)
        free(self.staged_mapped)

    # -- called from Python --------------------------------------------------------------------------------------

    def accept_connect(self) -> None:
        """Go on parsing after the peer's CONNECT; only join() allows it to subscribe and to publish."""
        self.request(CTL_ACCEPTED | CTL_RESUME, 0)

    def join(
        self,
        Account account not None,
        *,
        bytes greeting not None=b"",
        bytes cluster not None,
        bint spoke,
        bint isolated,
        bint dialled=False,
        bint headers,
        bint traces,
        bint passes=False,
        bytes loop_subject not None,
        tuple mapped not None=(),
        Permissions permissions=None,
        Permissions receive=None,
        int64_t max_subs=-1,
        int max_payload=-1,
    ) -> None:
        """Begin to exchange interest and messages with the peer, which is registered: send `greeting`, go on parsing.

        The peer, of `cluster`, gets what happens in `account`. `spoke`: the peer is the hub. `dialled`: this server has
        dialled it. `isolated`: it is not told of other leaf nodes' interest. `headers`, `traces` and `passes` (messages
        that are passed on to queue groups alone) say what the peer knows. `loop_subject` and the subjects in `mapped`
        are announced whoever subscribes; when the former comes back, LEAF_LOOP is reported. `permissions` say what is
        announced (subscribe), and what the peer may subscribe to and is sent (publish); `receive` what the peer may
        send (publish); without it a spoke may send what is announced. Call it once. Raises MemoryError.
        """
        cdef Mapped *names
        self.append_remote(greeting)
        self.stage_permissions(permissions)
        self.keep += [account, cluster, loop_subject]
        self.keep_receive(receive)
        names = mapped_of(mapped)
        pthread_mutex_lock(&self.lock)
        self.staged_account = <void *> account
        self.staged_cluster.p = PyBytes_AS_STRING(cluster)
        self.staged_cluster.n = PyBytes_GET_SIZE(cluster)
        self.loop_subject.p = PyBytes_AS_STRING(loop_subject)
        self.loop_subject.n = PyBytes_GET_SIZE(loop_subject)
        free(self.staged_mapped)
        self.staged_mapped = names
        self.mapped_staged = 1
        self.staged_spoke = spoke
        self.staged_dialled = dialled
        self.staged_isolated = isolated
        self.staged_form = FORM_RHMSG if headers else FORM_RMSG
        self.staged_traces = traces
        self.staged_passes = passes
        self.staged_receive = NULL if receive is None else <void *> receive
        self.max_subs = max_subs
        self.staged_max_payload = max_payload
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_JOINED | CTL_RESUME, 0)

    def set_permissions(self, Permissions permissions, Permissions receive=None) -> None:
        """Replace join()'s permissions: tell the peer what it may hear of now. Raises MemoryError."""
        self.stage_permissions(permissions)
        self.keep_receive(receive)
        pthread_mutex_lock(&self.lock)
        self.staged_receive = NULL if receive is None else <void *> receive
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_PERMISSIONS, 0)

    def set_mapped(self, tuple mapped not None) -> None:
        """Replace join()'s `mapped`. Raises MemoryError."""
        cdef Mapped *names = mapped_of(mapped)
        pthread_mutex_lock(&self.lock)
        free(self.staged_mapped)
        self.staged_mapped = names
        self.mapped_staged = 1
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_MAPPED, 0)

    def keep_receive(self, Permissions receive) -> None:
        """Keep permissions for `staged_receive`, and those before that the owner still uses."""
        cdef void *current
        cdef void *staged
        pthread_mutex_lock(&self.lock)
        current = self.receive
        staged = self.staged_receive
        pthread_mutex_unlock(&self.lock)
        # In a tuple: stage_permissions() drops bare ones.
        self.keep = [
            kept for kept in self.keep
            if not isinstance(kept, tuple) or <void *> (<tuple> kept)[0] in (current, staged)
        ]
        self.keep.append((receive,))

    # -- the session ---------------------------------------------------------------------------------------------

    cdef void take_requests(self, uint32_t ctl) noexcept nogil:
        if load8(&self.closing):
            return   # closing() has undone what would begin here
        self.take_link_requests(ctl)
        if ctl & CTL_JOINED and not self.joined:
            self.begin_to_link()
        elif ctl & CTL_PERMISSIONS and self.joined:
            self.change_permissions()
        if ctl & CTL_MAPPED and self.joined:
            self.change_mapped()
        if ctl & CTL_IMPORTS and self.joined:
            renew_shadows(self)

    cdef void begin_to_link(self) noexcept nogil:
        cdef size_t i
        self.joined = self.admitted = 1
        guard_next(&self.guard)
        self.input.parser.auth_set = 0
        pthread_mutex_lock(&self.lock)
        self.account = self.staged_account
        self.cluster = self.staged_cluster
        self.spoke = self.staged_spoke
        self.own_hub = self.staged_spoke and self.staged_dialled
        self.isolated = self.staged_isolated
        self.mapped = self.staged_mapped
        self.staged_mapped = NULL
        self.mapped_staged = 0
        self.input.parser.max_payload = self.staged_max_payload
        pthread_mutex_unlock(&self.lock)
        self.input.parser.pa.m.account = self.account
        self.input.parser.headers = self.staged_form == FORM_RHMSG
        store8(&self.form, self.staged_form)
        self.traces = self.staged_traces
        self.passes = self.staged_passes
        self.use_permissions(0)
        set_first_ping_timer(self, &self.pings)
        link_begin(&self.link)
        self.announce_own(&self.loop_subject, True)
        for i in range(mapped_count(self.mapped)):
            self.announce_own(&self.mapped.at[i].name, True)
        # What is announced may call for denials (note_denials), which must hold before the hub is sent anything.
        self.interest_waits = link_announce(
            self, &self.link, ANNOUNCE_READY if self.spoke and self.guard.permissions != NULL else ANNOUNCE_TURN)

    cdef void use_permissions(self, uint8_t checks) noexcept nogil:
        pthread_mutex_lock(&self.lock)
        self.receive = self.staged_receive
        pthread_mutex_unlock(&self.lock)
        if not guard_install(&self.guard, checks):
            self.out_of_memory(READ_ERROR)

    cdef void change_permissions(self) noexcept nogil:
        link_announce(self, &self.link, ANNOUNCE_ALL)
        self.permissions_before = self.guard.permissions
        self.coming = guard_next(&self.guard)
        self.use_permissions(self.denials_to_come())
        self.announce_mapped_differences()
        self.changing = 1
        self.walk(write_difference)
        self.changing = 0
        self.unsubscribe_denied()

    cdef uint8_t denials_to_come(self) noexcept nogil:
        cdef const Subscription *s
        cdef size_t i
        self.denials = 0
        if not self.spoke or self.coming == NULL:
            return 0
        self.walk(note_to_come)
        for i in range(mapped_count(self.mapped)):
            if is_announced(self.coming, self.mapped.at[i].name.p, self.mapped.at[i].name.n):
                self.note_to_come(self.mapped.at[i].name.p, self.mapped.at[i].name.n, 0)
        if self.subs.n:
            for i in range(<size_t> self.subs.mask + 1):
                s = self.subs.slots[i]
                while s != NULL:
                    if may_subscribe_to(self.coming, sub_subject(s), s.subject_len):
                        self.note_to_come(sub_subject(s), s.subject_len, s.queue_len)
                    s = s.next
        return self.denials

    cdef void note_to_come(self, const char *subject, size_t n, size_t qn) noexcept nogil:
        if not self.denials and self.calls_for_denials(self.coming, subject, n, qn):
            self.denials = CHECK_DENIALS | CHECK_DELIVERIES

    cdef void announce_mapped_differences(self) noexcept nogil:
        cdef const Slice *name
        cdef bint before, now
        cdef size_t i
        if not self.spoke:
            return   # a hub announces them whatever its permissions say
        for i in range(mapped_count(self.mapped)):
            name = &self.mapped.at[i].name
            before = is_announced(self.permissions_before, name.p, name.n)
            now = is_announced(self.guard.permissions, name.p, name.n)
            if before != now and not self.write_interest(name.p, name.n, NULL, 0, now):
                self.close_soon(WRITE_ERROR)

    cdef void unsubscribe_denied(self) noexcept nogil:
        cdef Subscription *s
        cdef Subscription *following
        cdef uint32_t i = 0, mask
        if self.guard.permissions == NULL or load8(&self.closing):
            return
        while self.subs.n and i <= self.subs.mask:
            mask = self.subs.mask
            s = self.subs.slots[i]
            i += 1
            while s != NULL:
                following = s.next
                if not may_subscribe_to(self.guard.permissions, sub_subject(s), s.subject_len):
                    unsubscribe(self, s)
                    if self.subs.n == 0 or self.subs.mask != mask:
                        i = 0   # the table has shrunk, which has put the others elsewhere
                        break
                s = following

    cdef void change_mapped(self) noexcept nogil:
        cdef Mapped *before = self.mapped
        cdef size_t i
        pthread_mutex_lock(&self.lock)
        if not self.mapped_staged:
            pthread_mutex_unlock(&self.lock)
            return
        self.mapped = self.staged_mapped
        self.staged_mapped = NULL
        self.mapped_staged = 0
        pthread_mutex_unlock(&self.lock)
        for i in range(mapped_count(self.mapped)):
            if mapped_find(before, self.mapped.at[i].name.p, self.mapped.at[i].name.n) == NULL:
                self.announce_own(&self.mapped.at[i].name, True)
        self.mapped_before = before
        self.walk(note_unmapped)   # and what changes meanwhile: write_change
        self.mapped_before = NULL
        for i in range(mapped_count(before)):
            if not before.at[i].wanted and not self.is_mapped(before.at[i].name.p, before.at[i].name.n):
                self.announce_own(&before.at[i].name, False)
        free(before)

    cdef bint is_mapped(self, const char *subject, size_t n) noexcept nogil:
        return mapped_find(self.mapped, subject, n) != NULL

    cdef void announce_own(self, const Slice *subject, bint begins) noexcept nogil:
        """Announce a subject that does not depend on subscribers, or announce it no longer. A hub always does."""
        if self.spoke:
            if not is_announced(self.guard.permissions, subject.p, subject.n):
                return
            self.note_denials(subject.p, subject.n, 0)
        if not self.write_interest(subject.p, subject.n, NULL, 0, begins):
            self.close_soon(WRITE_ERROR)

    cdef bint write_change(self, const InterestChange *change) noexcept nogil:
        cdef const char *subject = change_subject(change)
        if not change.queue_len and self.is_mapped(subject, change.subject_len):
            return True   # it is announced anyway
        if unlikely(self.mapped_before != NULL):
            note_unmapped(self, change)
        cdef bint now = is_announced(self.guard.permissions, subject, change.subject_len)
        # While permissions change: the peer may know of it, as the former ones allowed.
        if not now and not (
                self.changing and is_announced(self.permissions_before, subject, change.subject_len)):
            return True
        if change.now.local:
            self.note_denials(subject, change.subject_len, 0)
        return self.write_interest(
            subject, change.subject_len, change_queue(change), change.queue_len, change.now.local if now else 0)

    cdef bint write_difference(self, const InterestChange *change) noexcept nogil:
        cdef const char *subject = change_subject(change)
        cdef bint before = is_announced(self.permissions_before, subject, change.subject_len)
        cdef bint now = is_announced(self.guard.permissions, subject, change.subject_len)
        if now:
            self.note_denials(subject, change.subject_len, 0)
        if before == now or (not change.queue_len and self.is_mapped(subject, change.subject_len)):
            return True
        return self.write_interest(
            subject, change.subject_len, change_queue(change), change.queue_len, change.now.local if now else 0)

    cdef bint write_interest(
        self, const char *subject, size_t n, const char *queue, size_t qn, uint32_t weight
    ) noexcept nogil:
        """Queue an LS+, or an LS- for no weight. False: no memory."""
        cdef char[FEW_BYTES] few
        cdef char *line = few
        cdef char *p
        cdef bint written
        cdef size_t room = strlen(b"LS+ \r\n") + n + qn + 2 + NUMBER_ROOM
        if room > sizeof(few):
            line = <char *> malloc(room)
            if line == NULL:
                return False
        p = put(put_text(line, b"LS+ " if weight else b"LS- "), subject, n)
        if qn:
            p = put(put_text(p, b" "), queue, qn)
            if weight:
                p = put_number(put_text(p, b" "), weight)
        written = self.queue_line(line, p)
        if line != few:
            free(line)
        return written

    cdef bint calls_for_denials(
        self, const void *permissions, const char *subject, size_t n, size_t qn
    ) noexcept nogil:
        """In a spoke, once interest in wildcards, here or there, includes subjects that may not be announced, all
        deliveries are checked for these (loadMsgDenyFilterIfNeeded). nats-server's hubs look at what they may not send
        only."""
        return self.spoke and permissions != NULL and not is_free(subject, n) and (
            <Permissions> permissions).needs_filter(subject, n, qn)

    cdef void note_denials(self, const char *subject, size_t n, size_t qn) noexcept nogil:
        if not self.guard.checks & CHECK_DENIALS and self.calls_for_denials(
                self.guard.permissions, subject, n, qn):
            guard_denials(&self.guard)

    cdef bint may_receive(self, const Slice *subject) noexcept nogil:
        """Return whether the peer may send a message (leafMsgAllowed)."""
        cdef Slice plain = plain_reply(subject)
        if is_service_reply(plain.p, plain.n) or is_jetstream_ack(&plain):
            return True
        if self.own_hub and is_gateway_reply(subject):
            return True
        return self.may_send(&plain) or (
            not self.spoke and self.guard.permissions != NULL and may_reply(&self.guard, self.ps, subject))

    cdef bint may_map(self, const Slice *reply) noexcept nogil:
        cdef Slice plain = plain_reply(reply)
        return self.own_hub or may_subscribe_to(self.guard.permissions, plain.p, plain.n)

    cdef bint may_send(self, const Slice *subject) noexcept nogil:
        """Return whether permissions allow the peer to send messages of a subject."""
        if self.spoke:
            return self.guard.permissions == NULL or (
                <Permissions> self.guard.permissions).can_subscribe(LEAF, subject.p, subject.n, subject.p, 0)
        return self.receive == NULL or (<Permissions> self.receive).pub_allowed(LEAF, subject.p, subject.n)

    cdef int report(self, int what, const char *data, size_t n) noexcept nogil:
        hand_over_first(self.ps)
        if not self.inbox.post_data(EV_LEAF, <void *> self, &self.source, what, 0, data, n):
            self.out_of_memory(READ_ERROR)
            return PARSE_CLOSED
        return PARSE_PUNT

    cdef int not_joined(self) noexcept nogil:
        send_err(self, b"Authorization Violation")
        self.close_connection_nogil(PROTOCOL_VIOLATION)
        return PARSE_CLOSED

    # -- verbs ---------------------------------------------------------------------------------------------------

    cdef int process_sub(self, char *arg, size_t n) noexcept nogil:
        cdef Slice[MOST_WORDS] words
        cdef Slice sid, none
        cdef uint32_t count = split_line(arg, n, words, MOST_WORDS)
        cdef int weight = 1
        self.read_subs += 1
        if not self.joined:
            return self.not_joined()
        hand_over_first(self.ps)
        if count != 1 and count != 3:
            return self.violation(BAD_REMOTE_SUB_ARGS, c'L', arg, n)
        if words[0].n == self.loop_subject.n and same_bytes(words[0].p, self.loop_subject.p, words[0].n):
            return self.report(LEAF_LOOP, words[0].p, words[0].n)
        if not may_subscribe_to(self.guard.permissions, words[0].p, words[0].n):
            if self.spoke:
                return go_on(self)
            return self.report(LEAF_SUBSCRIBE_DENIED, words[0].p, words[0].n)
        self.note_denials(words[0].p, words[0].n, words[1].n if count == 3 else 0)
        none.p = arg
        none.n = 0
        sid = words[0]
        if count == 3:
            weight = min(parse_size(words[2].p, words[2].n), <int> MOST_WEIGHT)
            sid.n = words[1].p + words[1].n - sid.p
        return self.take_interest(&sid, &words[0], &words[1] if count == 3 else &none, weight)

    cdef int take_interest(
        self, const Slice *sid, const Slice *subject, const Slice *queue, int weight
    ) noexcept nogil:
        """Subscribe; or, where there is that subscription, note its new weight."""
        cdef Subscription *s = subtable_find(&self.subs, sid.p, sid.n)
        cdef int error = 0
        if weight <= 0:   # no member: nobody must choose it
            if s != NULL:
                unsubscribe(self, s)
            return go_on(self)
        if s != NULL:
            if queue.n:
                (<Account> self.account).update_remote_qsub(s, <uint32_t> weight)
                weigh_shadows(self, s, <uint32_t> weight)
            return go_on(self)
        if self.max_subs >= 0 and load64(&self.nsubs) >= <uint64_t> self.max_subs:
            self.log(LOG_MAX_SUBSCRIPTIONS, 0, NULL, 0)
            send_err(self, b"maximum subscriptions exceeded")
            return go_on(self)
        s = add_remote_sub(
            self, <Account> self.account, subject.p, subject.n, queue.p, queue.n, <uint32_t> weight, sid.p, sid.n,
            &error)
        if s == NULL and error:
            self.log(LOG_INVALID_REMOTE_SUB, 0, NULL, 0)
            send_err(self, b"Invalid Subscription")
        elif s == NULL:
            self.out_of_memory(READ_ERROR)
        return go_on(self)

    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil:
        cdef Slice[MOST_WORDS] words
        cdef uint32_t count = split_line(arg, n, words, MOST_WORDS)
        cdef Subscription *s
        self.read_subs += 1
        if not self.joined:
            return self.not_joined()
        hand_over_first(self.ps)
        if count != 1 and count != 2:
            return self.violation(BAD_REMOTE_UNSUB_ARGS, c'L', arg, n)
        s = subtable_find(&self.subs, words[0].p, words[count - 1].p + words[count - 1].n - words[0].p)
        if s != NULL:
            unsubscribe(self, s)
        return go_on(self)

    cdef int process_inbound_msg(self) noexcept nogil:
        cdef Message m = self.input.parser.pa.m
        cdef RemoteArgs own
        self.read_msgs += 1
        self.read_bytes += m.n
        if self.trace:
            self.trace_msg(TRACE_IN_PAYLOAD, m.data, m.n + 2, m.hdr)
        if not self.joined or m.remote == NULL:
            return go_on(self)
        if not self.may_receive(&m.subject):
            if self.spoke:
                return go_on(self)
            return self.report(LEAF_PUBLISH_DENIED, m.subject.p, m.subject.n)
        if unlikely(is_mapped_reply(&m.subject)) and not take_answer(self, &m, &own):
            return go_on(self)
        if unlikely(is_mapped_reply(&m.reply)) and not self.may_map(&m.reply):
            m.reply = plain_reply(&m.reply)
            m.line = NULL
        show_deliver_subject(&m)
        if unlikely(m.hdr != 0) and may_be_traced(self, &m):
            self.route_traced(&m)
        else:
            self.route_msg(&m)
        return go_on(self)

    cdef void route_msg(self, Message *m) noexcept nogil:
        if unlikely(account_mappings(<Account> self.account) != NULL) and map_published(self, m):
            # Interest in what was mapped has brought the message here: it names no groups of what it is mapped to.
            self.input.parser.remote.all_groups = m.remote.nqueues == 0
        if route(m, (<Account> self.account).sublist) == ROUTE_NO_MEMORY:
            self.out_of_memory(READ_ERROR)

    cdef void route_traced(self, Message *m) noexcept nogil:
        cdef char[SIZES_ROOM] sizes
        cdef char *changed = NULL
        cdef bint disable = False
        if init_msg_trace(self, m, &disable) == TRACE_SKIP:
            return
        if m.trace != NULL and not self.may_send(&m.trace_dest):
            send_denial(self, DENIED_PUBLISH, &m.trace_dest, NULL, NULL)
            self.log(LOG_PUBLISH_VIOLATION, 0, m.trace_dest.p, m.trace_dest.n)
            trace_free(m.trace)
            return
        if disable:
            changed = set_trace_dest(m, NULL, sizes)
        self.route_msg(m)
        free(changed)
        if m.trace != NULL:
            send_msg_trace(self, m)


cdef Mapped *mapped_of(tuple texts) except? NULL:
    """Copy bytes objects; NULL for none. Raises MemoryError."""
    cdef size_t room = sizeof(Mapped)
    cdef Mapped *mapped
    cdef char *p
    cdef size_t i, n = len(texts)
    if n == 0:
        return NULL
    for i in range(n):
        room += sizeof(MappedSubject) + PyBytes_GET_SIZE(texts[i])
    mapped = <Mapped *> malloc(room)
    if mapped == NULL:
        raise MemoryError
    mapped.n = n
    p = <char *> &mapped.at[n]
    for i in range(n):
        mapped.at[i].name.p = p
        mapped.at[i].name.n = PyBytes_GET_SIZE(texts[i])
        mapped.at[i].wanted = 0
        p = put(p, PyBytes_AS_STRING(texts[i]), mapped.at[i].name.n)
    return mapped


cdef inline size_t mapped_count(const Mapped *mapped) noexcept nogil:
    return mapped.n if mapped != NULL else 0


cdef MappedSubject *mapped_find(Mapped *mapped, const char *subject, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(mapped_count(mapped)):
        if mapped.at[i].name.n == n and same_bytes(mapped.at[i].name.p, subject, n):
            return &mapped.at[i]
    return NULL


cdef inline bint is_free(const char *subject, size_t n) noexcept nogil:
    """Return whether interest in a subject crosses a leaf node whatever its permissions say."""
    cdef Slice text
    text.p = <char *> subject
    text.n = n
    return n and (subject[0] == c'$' or subject[0] == c'_') and (
        is_loop_subject(subject, n) or is_gateway_reply(&text))


cdef bint is_announced(const void *permissions, const char *subject, size_t n) noexcept nogil:
    return permissions == NULL or is_free(subject, n) or (
        <Permissions> permissions).can_subscribe(LEAF, subject, n, subject, 0)


cdef bint may_subscribe_to(const void *permissions, const char *subject, size_t n) noexcept nogil:
    """Return whether the peer may subscribe: to wildcards it always may, and is sent what is allowed."""
    return permissions == NULL or is_free(subject, n) or subject_has_wildcard(subject, n) or (
        <Permissions> permissions).pub_allowed(LEAF, subject, n)


# -- the link's functions ----------------------------------------------------------------------------------------------

cdef bint carries(Subscriber owner, Account account) noexcept nogil:
    return owner.account == <void *> account


cdef bint write_change(Subscriber owner, const InterestChange *change) noexcept nogil:
    return (<LeafSession> owner).write_change(change)


cdef bint note_unmapped(Subscriber owner, const InterestChange *change) noexcept nogil:
    """Note whether a subject that was mapped is announced for its subscribers."""
    cdef const char *subject = change_subject(change)
    cdef MappedSubject *found = NULL
    if not change.queue_len:
        found = mapped_find((<LeafSession> owner).mapped_before, subject, change.subject_len)
    if found != NULL:
        found.wanted = change.now.local != 0 and is_announced(
            (<LeafSession> owner).guard.permissions, subject, change.subject_len)
    return True


cdef bint note_to_come(Subscriber owner, const InterestChange *change) noexcept nogil:
    if is_announced((<LeafSession> owner).coming, change_subject(change), change.subject_len):
        (<LeafSession> owner).note_to_come(change_subject(change), change.subject_len, 0)
    return True


cdef bint write_difference(Subscriber owner, const InterestChange *change) noexcept nogil:
    return (<LeafSession> owner).write_difference(change)


# -- the session's functions: the connection calls them ----------------------------------------------------------------

cdef void on_control(Connection c, uint32_t ctl) noexcept nogil:
    (<LeafSession> c).take_requests(ctl)


cdef void begin(Connection c) noexcept nogil:
    c.inbox.post_data(EV_BEGUN, <void *> c, &c.source, 0, 0, NULL, 0)
    start_auth_timer(<LeafSession> c)
    if (<LeafSession> c).info_first and (<LeafSession> c).input.parser.auth_set:
        (<LeafSession> c).input.parser.auth_set = CONNECT_OR_INFO


share_link_session(&LEAF_SESSION)
LEAF_SESSION.begin = begin
LEAF_SESSION.expired = session_expired
LEAF_SESSION.on_control = on_control


# -- the parser's handlers ---------------------------------------------------------------------------------------------

cdef int process_inbound_msg(void *owner) noexcept nogil:
    return (<LeafSession> owner).process_inbound_msg()


cdef int process_sub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<LeafSession> owner).process_sub(arg, n)


cdef int process_unsub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<LeafSession> owner).process_unsub(arg, n)


cdef int process_err(void *owner, char *arg, size_t n) noexcept nogil:
    return (<LeafSession> owner).report(LEAF_ERROR, arg, n)


share_link_verbs(&VERBS)
VERBS.process_inbound_msg = process_inbound_msg
VERBS.process_sub = process_sub
VERBS.process_unsub = process_unsub
VERBS.process_err = process_err
