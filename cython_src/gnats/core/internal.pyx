"""The server's own subscribers; see internal.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.imports cimport renew_shadows
from gnats.core.accounts.subscriber cimport CTL_IMPORTS, Subscriber
from gnats.core.accounts.subscriptions cimport (
    add_sub,
    end_subscriptions,
    remove_all_subs,
    unsubscribe,
    unsubscribe_exhausted,
)
from gnats.core.batch cimport end_batch_between_rounds
from gnats.core.messages.message cimport SIZES_ROOM, Message, message_set_data
from gnats.core.net.connection cimport CTL_CLOSE, Connection, Denial, SessionType
from gnats.core.net.pollstate cimport PollerBase
from gnats.core.publishing cimport begin_message, route_msg
from gnats.core.routing.route cimport ROUTE_DELIVERED, RouteOutcome
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.kinds cimport SYSTEM
from gnats.core.runtime.quiesce cimport qs_offline, qs_online
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport ServerState
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.subtable cimport subtable_find
from gnats.includes.atomics cimport load8

cdef SessionType INTERNAL_SESSION


cdef class InternalSubscriber(Subscriber):
    """One of the server's own subscribers: `kind` is SYSTEM, JETSTREAM or ACCOUNT, `fd` is -1."""

    def __cinit__(self, int kind, int fd, uint64_t cid, PollerBase poller not None, ServerState state not None):
        self.session = &INTERNAL_SESSION
        self.echo = kind != SYSTEM   # the server does not hear its own events, nor answers its own requests

    def __dealloc__(self):
        if self.session != NULL:   # else __cinit__ failed before it set anything up
            remove_all_subs(self)

    # -- called from Python --------------------------------------------------------------------------------------

    def register(self, Account account not None) -> None:
        """Publish and subscribe in `account`. Call it before anything else."""
        self.keep.append(account)
        self.account = <void *> account
        account.add_internal(self)

    def close_connection(self, int reason) -> None:
        """End all subscriptions; EV_CLOSED follows. Idempotent."""
        self.request(CTL_CLOSE, reason)

    def subscribe_internal(self, bytes subject not None, bytes queue, bytes sid not None) -> None:
        """Subscribe: messages arrive as EV_MSG. Raises ValueError for an invalid subject or a sid in use, MemoryError.
        """
        cdef int error = 0
        cdef bytes q = queue or b""
        cdef Subscription *s
        if subtable_find(&self.subs, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid)) != NULL:
            raise ValueError(f"sid {sid!r} is in use")
        s = add_sub(
            self, <Account> self.account, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(q), PyBytes_GET_SIZE(q), PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid), &error)
        if s == NULL:
            raise MemoryError if error == 0 else ValueError(f"invalid subject {subject!r}")

    def unsubscribe_internal(self, bytes sid not None) -> None:
        """Undo subscribe_internal. Raises KeyError for an unknown sid."""
        cdef Subscription *s = subtable_find(&self.subs, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
        if s == NULL:
            raise KeyError(sid)
        unsubscribe(self, s)

    def publish_internal(self, bytes subject not None, bytes reply, bytes headers, bytes payload not None) -> bool:
        """Publish. Return whether a subscriber received the message.

        `headers` is a whole header block, from the "NATS/1.0" line to the empty line. A `reply` of b"" leaves an empty
        place for it in the MSG line, as nats-server's own messages do; None leaves none. Runs a whole batch of the
        control loop's poller. Raises MemoryError.
        """
        cdef bytes hdr = headers or b""
        cdef bytes msg = hdr + payload
        cdef char[SIZES_ROOM] sizes
        cdef Message m
        cdef RouteOutcome outcome
        qs_online(&self.ps.qs)
        self.ps.now = monotonic_ns()
        begin_message(self, &m)
        m.subject.p = PyBytes_AS_STRING(subject)
        m.subject.n = PyBytes_GET_SIZE(subject)
        if reply is not None:
            m.reply.p = PyBytes_AS_STRING(reply)
            m.reply.n = PyBytes_GET_SIZE(reply)
        message_set_data(&m, PyBytes_AS_STRING(msg), PyBytes_GET_SIZE(hdr), PyBytes_GET_SIZE(msg), sizes)
        outcome = route_msg(self, &m)
        end_batch_between_rounds(self.ps)
        qs_offline(&self.ps.qs)
        return outcome == ROUTE_DELIVERED


# -- the session's functions: the connection calls them; without a socket it calls no others ---------------------------

cdef void on_control(Connection c, uint32_t ctl) noexcept nogil:
    unsubscribe_exhausted(<Subscriber> c)
    if ctl & CTL_IMPORTS and not load8(&c.closing):
        renew_shadows(<Subscriber> c)


cdef bint closing(Connection c) noexcept nogil:
    return end_subscriptions(<Subscriber> c)


# There is no peer to read answers.
cdef void send_ok(Connection c) noexcept nogil:
    pass


cdef void send_err(Connection c, const char *text) noexcept nogil:
    pass


cdef void send_denied(
    Connection c, Denial what, const Slice *subject, const Slice *queue, const Slice *sid
) noexcept nogil:
    pass


INTERNAL_SESSION.on_control = on_control
INTERNAL_SESSION.closing = closing
INTERNAL_SESSION.send_ok = send_ok
INTERNAL_SESSION.send_err = send_err
INTERNAL_SESSION.send_denied = send_denied
