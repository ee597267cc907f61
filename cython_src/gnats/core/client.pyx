"""The session of a NATS client; see client.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.denials cimport refuse_subscription
from gnats.core.accounts.guard cimport may_subscribe
from gnats.core.accounts.imports cimport renew_shadows
from gnats.core.accounts.subscriber cimport CTL_IMPORTS, CTL_PERMISSIONS
from gnats.core.accounts.subscriptions cimport (
    add_sub,
    apply_permissions,
    end_subscriptions,
    remove_all_subs,
    unsubscribe,
    unsubscribe_exhausted,
)
from gnats.core.auth.permissions cimport Permissions
from gnats.core.messages.encode cimport FORM_HMSG, FORM_MSG
from gnats.core.messages.message cimport Message
from gnats.core.net.connection cimport CTL_RESUME, READ_ERROR, Connection, SessionType
from gnats.core.net.log_records cimport LOG_MAX_SUBSCRIPTIONS
from gnats.core.net.pollstate cimport PollerBase, hand_over_first
from gnats.core.pings cimport set_first_ping_timer, set_ping_limits, start_ping_timer
from gnats.core.protocol.answers cimport send_err, send_ok
from gnats.core.protocol.parser cimport (
    BAD_SUB_ARGS,
    BAD_UNSUB_ARGS,
    OVER_MAX_PAYLOAD,
    PARSE_CLOSED,
    ParserHandlers,
)
from gnats.core.protocol.words cimport parse_size, split_line
from gnats.core.publishing cimport begin_message, process_inbound_client_msg, trace_too_large
from gnats.core.runtime.const cimport (
    DEFAULT_PING_INTERVAL,
    DEFAULT_PING_MAX_OUT,
    MAX_CONTROL_LINE_SIZE,
    MAX_PAYLOAD_SIZE,
)
from gnats.core.runtime.inbox cimport EV_CONNECT
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.sessioninput cimport go_on, input_init, punt
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.subtable cimport subtable_find
from gnats.core.textsession cimport (
    TEXT_CTL,
    TextSession,
    share_session,
    share_verbs,
    start_auth_timer,
    stop_timers,
)
from gnats.includes.atomics cimport load8, loadi64, store8, storei64
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport is_text
from gnats.includes.times cimport duration_of

cdef enum:
    CTL_CONNECTED = TEXT_CTL        # the control plane has accepted a CONNECT
    CTL_LIMITS = TEXT_CTL << 1

cdef SessionType CLIENT_SESSION
cdef ParserHandlers VERBS


cdef class Client(TextSession):
    """A connection of a NATS client; see Connection.

    Sizes are in bytes, `ping_interval` in seconds; -1 for max_payload or max_subs means no limit.
    """

    def __cinit__(
        self,
        int kind,
        int fd,
        uint64_t cid,
        PollerBase poller not None,
        ServerState state not None,
        *,
        int max_control_line=MAX_CONTROL_LINE_SIZE,
        int max_payload=MAX_PAYLOAD_SIZE,
        size_t max_pending=0,
        int max_subs=-1,
        double write_deadline=0.0,
        bint retries=False,
        double ping_interval=DEFAULT_PING_INTERVAL,
        int ping_max=DEFAULT_PING_MAX_OUT,
    ):
        # Connection.__cinit__ takes max_pending, write_deadline and retries, TextSession.__cinit__ the pings.
        self.session = &CLIENT_SESSION
        input_init(&self.input, kind, &VERBS, <void *> self)
        self.input.parser.max_control_line = max_control_line
        self.input.parser.max_payload = max_payload
        self.input.parser.pedantic = self.verbose = self.may_stall = kind == CLIENT
        self.max_subs = max_subs

    def __dealloc__(self):
        if self.session != NULL:   # else __cinit__ failed before it set anything up
            self.started = 0   # it is in no batch
            remove_all_subs(self)
        free(self.connect_info)

    # -- called from Python --------------------------------------------------------------------------------------

    def register(self, Account account not None) -> None:
        """Publish and subscribe in `account`. Call it before start()."""
        self.keep.append(account)
        self.account = <void *> account
        begin_message(self, &self.input.parser.pa.m)

    def set_limits(
        self, *, int max_control_line, int max_payload, int max_subs, double ping_interval, int ping_max
    ) -> None:
        """Set limits, -1 for none; `ping_interval` in seconds. Subscriptions over max_subs stay."""
        pthread_mutex_lock(&self.lock)
        self.staged_limits.max_control_line = max_control_line
        self.staged_limits.max_payload = max_payload
        self.staged_limits.max_subs = max_subs
        self.staged_limits.ping_interval = duration_of(ping_interval)
        self.staged_limits.ping_max = ping_max
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_LIMITS, 0)

    def accept_connect(
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
        """Accept a CONNECT: set its account and options, send `greeting`, and go on parsing.

        `connect_info` is the INFO line to send behind the first PONG to a client with protocol 1. `permissions` None
        allows everything; -1 means no limit. Without memory for `connect_info` the connection is closed. Raises
        MemoryError.
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
        self.staged_limits.max_subs = max_subs  # replaces an earlier account's
        self.staged_limits.max_payload = max_payload
        self.staged_account = <void *> account
        free(self.connect_info)
        self.connect_info = copy
        self.connect_info_len = n
        pthread_mutex_unlock(&self.lock)
        self.request(CTL_CONNECTED | CTL_RESUME, 0)

    def replace_connect_info(self, bytes line not None) -> bool:
        """Replace accept_connect()'s `connect_info`, unless it has been sent; return whether it has not.

        Raises MemoryError.
        """
        cdef size_t n = PyBytes_GET_SIZE(line)
        cdef char *copy = <char *> malloc(n)
        cdef char *old
        if copy == NULL:
            raise MemoryError
        memcpy(copy, PyBytes_AS_STRING(line), n)
        pthread_mutex_lock(&self.lock)
        old = self.connect_info
        if old != NULL:
            self.connect_info = copy
            self.connect_info_len = n
        pthread_mutex_unlock(&self.lock)
        free(old if old != NULL else copy)
        return old != NULL

    @property
    def pong_sent(self) -> bool:
        """Whether the client's first PING has been answered. From then on it may be sent INFO at any time."""
        return load8(&self.first_pong_sent) != 0

    # -- the session ---------------------------------------------------------------------------------------------

    cdef void take_requests(self, uint32_t ctl) noexcept nogil:
        cdef Limits limits
        if load8(&self.closing):
            return   # subscriptions that have had their last message are removed with all others, or freed already
        unsubscribe_exhausted(self)
        if load8(&self.closing):
            return
        if ctl & CTL_CONNECTED:
            self.take_options()
        elif ctl & CTL_PERMISSIONS:
            apply_permissions(self)
        if ctl & CTL_IMPORTS:
            renew_shadows(self)
        if ctl & CTL_LIMITS:
            pthread_mutex_lock(&self.lock)
            limits = self.staged_limits
            pthread_mutex_unlock(&self.lock)
            self.apply_limits(&limits)

    cdef void take_options(self) noexcept nogil:
        cdef ConnectOptions opts
        cdef int32_t max_subs, max_payload
        cdef void *account
        pthread_mutex_lock(&self.lock)
        opts = self.staged
        max_subs = self.staged_limits.max_subs
        max_payload = self.staged_limits.max_payload
        account = self.staged_account
        pthread_mutex_unlock(&self.lock)
        if self.connect_received or account != self.account:
            # A second CONNECT starts over: remove what the client subscribed under the first. What it subscribed before
            # any CONNECT, where that is allowed, is in another account's sublist.
            remove_all_subs(self)
        self.account = account
        begin_message(self, &self.input.parser.pa.m)
        apply_permissions(self)
        self.echo = opts.echo
        self.verbose = opts.verbose
        self.no_responders = opts.no_responders
        store8(&self.form, FORM_HMSG if opts.headers else FORM_MSG)
        self.input.parser.headers = opts.headers
        self.input.parser.pedantic = opts.pedantic
        self.input.parser.max_payload = max_payload
        self.max_subs = max_subs
        self.connect_received = 1
        self.input.parser.auth_set = 0
        self.admitted = 1

    cdef void apply_limits(self, const Limits *limits) noexcept nogil:
        self.input.parser.max_control_line = limits.max_control_line
        self.input.parser.max_payload = limits.max_payload
        self.max_subs = limits.max_subs
        set_ping_limits(self, &self.pings, limits.ping_interval, limits.ping_max)

    # -- verbs ---------------------------------------------------------------------------------------------------

    cdef int process_connect(self, char *arg, size_t n) noexcept nogil:
        self.connect_has_come()
        set_first_ping_timer(self, &self.pings)
        return punt(self, EV_CONNECT, arg, n)

    cdef int process_inbound_msg(self) noexcept nogil:
        process_inbound_client_msg(self, &self.input.parser.pa.m)
        return go_on(self)

    cdef int process_ping(self) noexcept nogil:
        cdef char *info
        cdef size_t n
        TextSession.process_ping(self)
        if self.connect_received and not self.first_pong_sent:
            pthread_mutex_lock(&self.lock)
            info = self.connect_info
            n = self.connect_info_len
            self.connect_info = NULL
            pthread_mutex_unlock(&self.lock)
            if info != NULL:
                self.queue_outbound(info, n)
                free(info)
            store8(&self.first_pong_sent, 1)
        return go_on(self)

    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        if code == OVER_MAX_PAYLOAD:
            self.trace_over_max_payload()
        return TextSession.violation(self, code, b, data, n)

    cdef void trace_over_max_payload(self) noexcept nogil:
        """Trace a message over max_payload, from the part of it that has been read."""
        cdef Message m = self.input.parser.pa.m
        if self.input.parser.pa.hdr <= 0 or not self.input.parser.rest.n:
            return
        m.data = self.input.parser.rest.p
        m.n = <size_t> self.input.parser.pa.size
        m.hdr = min(<size_t> self.input.parser.pa.hdr, self.input.parser.rest.n)
        trace_too_large(self, &m)

    cdef int process_invalid_publish_subject(self) noexcept nogil:
        send_err(self, b"Invalid Publish Subject")
        return go_on(self)

    # -- subscriptions -------------------------------------------------------------------------------------------

    cdef int process_sub(self, char *arg, size_t n) noexcept nogil:
        cdef Slice[3] args
        cdef Slice sid, queue
        cdef uint32_t count = split_line(arg, n, args, 3)
        cdef int error
        hand_over_first(self.ps)
        if count != 2 and count != 3:
            return self.violation(BAD_SUB_ARGS, 0, arg, n)
        sid = args[count - 1]
        queue.p = arg
        queue.n = 0
        if count == 3:
            queue = args[1]
        self.read_subs += 1
        if (
            not may_subscribe(&self.guard, args[0].p, args[0].n, queue.p, queue.n)
            or is_text(queue.p, queue.n, b"_sys_")
        ):
            refuse_subscription(self, &args[0], &queue, &sid)
            return go_on(self)
        if self.max_subs >= 0 and self.subs.n >= <uint32_t> self.max_subs:
            self.log(LOG_MAX_SUBSCRIPTIONS, 0, NULL, 0)
            send_err(self, b"maximum subscriptions exceeded")
            return go_on(self)
        if subtable_find(&self.subs, sid.p, sid.n) == NULL:
            if add_sub(
                self, <Account> self.account, args[0].p, args[0].n, queue.p, queue.n, sid.p, sid.n, &error
            ) == NULL:
                if error == 0:
                    self.out_of_memory(READ_ERROR)
                    return PARSE_CLOSED
                send_err(self, b"Invalid Subject")
                return go_on(self)
        if self.verbose:
            send_ok(self)
        return go_on(self)

    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil:
        cdef Slice[2] args
        cdef uint32_t count = split_line(arg, n, args, 2)
        cdef int64_t max = -1
        cdef Subscription *s
        cdef bint gone
        hand_over_first(self.ps)
        if count != 1 and count != 2:
            return self.violation(BAD_UNSUB_ARGS, 0, arg, n)
        if count == 2:
            max = parse_size(args[1].p, args[1].n)
        self.read_subs += 1
        if self.verbose:
            send_ok(self)
        s = subtable_find(&self.subs, args[0].p, args[0].n)
        if s != NULL:
            if max > 0 and max > loadi64(&s.nm):
                # Another poller may be delivering the last message now. Under the lock, either it sees `max` or we see
                # its count.
                pthread_mutex_lock(&self.lock)
                storei64(&s.max, max)
                gone = loadi64(&s.nm) >= max
                pthread_mutex_unlock(&self.lock)
                if gone:
                    unsubscribe(self, s)
            else:
                unsubscribe(self, s)
        return go_on(self)

# -- the session's functions: the connection calls them ----------------------------------------------------------------

cdef void begin(Connection c) noexcept nogil:
    start_auth_timer(<Client> c)
    start_ping_timer(<Client> c, &(<Client> c).pings)


cdef void on_control(Connection c, uint32_t ctl) noexcept nogil:
    (<Client> c).take_requests(ctl)


cdef bint closing(Connection c) noexcept nogil:
    stop_timers(<Client> c)
    return end_subscriptions(<Client> c)


share_session(&CLIENT_SESSION)
CLIENT_SESSION.begin = begin
CLIENT_SESSION.on_control = on_control
CLIENT_SESSION.closing = closing


# -- the parser's handlers ---------------------------------------------------------------------------------------------

cdef int process_inbound_msg(void *owner) noexcept nogil:
    return (<Client> owner).process_inbound_msg()


cdef int process_sub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<Client> owner).process_sub(arg, n)


cdef int process_unsub(void *owner, char *arg, size_t n) noexcept nogil:
    return (<Client> owner).process_unsub(arg, n)


cdef int process_connect(void *owner, char *arg, size_t n) noexcept nogil:
    return (<Client> owner).process_connect(arg, n)


cdef int process_invalid_publish_subject(void *owner) noexcept nogil:
    return (<Client> owner).process_invalid_publish_subject()


share_verbs(&VERBS)
VERBS.process_inbound_msg = process_inbound_msg
VERBS.process_sub = process_sub
VERBS.process_unsub = process_unsub
VERBS.process_connect = process_connect
VERBS.process_invalid_publish_subject = process_invalid_publish_subject
VERBS.process_account_sub = NULL
