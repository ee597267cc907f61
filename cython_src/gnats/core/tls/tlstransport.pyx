"""The TLS layer between a connection and its socket (createClientEx and doTLSHandshake): the way to TLS, reads, writes.

The owner calls all of it; any thread may read the results of a handshake.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.net.connection cimport (
    CLIENT_CLOSED,
    MAX_CONNECTIONS_EXCEEDED,
    READ_ERROR,
    T_TRANSPORT,
    TLS_HANDSHAKE_ERROR,
    Connection,
)
from gnats.core.net.log_records cimport (
    LOG_TLS_COMPLETE,
    LOG_TLS_ERROR,
    LOG_TLS_NOT_PINNED,
    LOG_TLS_PROBE,
    LOG_TLS_STARTING,
    LOG_TLS_TIMEOUT,
    LOG_TLS_VERSION,
)
from gnats.core.net.outbound cimport OutQueue, outq_append, outq_chunks, outq_clear, outq_free, outq_merge
from gnats.core.net.pollstate cimport PollState
from gnats.core.net.transport cimport Transport, TransportType, transport_push, transport_remove
from gnats.core.runtime.kinds cimport GATEWAY, ROUTER
from gnats.core.runtime.timers cimport Timer, timer_clear
from gnats.core.tls.tlsstate cimport (
    TLS_CLOSED,
    TLS_EOF,
    TLS_ERROR,
    TLS_FAILED,
    TLS_HANDSHAKE,
    TLS_NOT_PINNED,
    TLS_OPEN,
    TLS_SNIFF,
    TLS_SYSCALL,
    TLS_WAIT,
    Tls,
    TLSBase,
)
from gnats.includes.atomics cimport load8, load8_acquire
from gnats.includes.linux cimport EAGAIN, EINTR, EIO, MSG_DONTWAIT, MSG_PEEK, errno, recv, ssize_t, stopwatch_ns
from gnats.includes.text cimport put
from gnats.includes.times cimport duration_of

cdef enum:
    HELLO = 0x16          # the first byte of a TLS connection
    # Records are read behind this much room and decrypted to the front of the same buffer. The plain bytes of these and
    # of a record begun before are never more than fits there.
    HEADROOM = 32 * 1024
    WIRE = 256 * 1024     # bytes of records to queue for the socket; the rest is encrypted later
    HANDSHAKING = 1000000   # ns of a batch for handshakes; beyond them wait for the next batch


cdef TransportType TLS


cdef bint copied(bytes data, char **copy, size_t *n):
    """Copy `data`, to NULL when it is empty; False without memory."""
    n[0] = <size_t> PyBytes_GET_SIZE(data)
    if n[0] == 0:
        return True
    copy[0] = <char *> malloc(n[0])
    if copy[0] == NULL:
        return False
    memcpy(copy[0], PyBytes_AS_STRING(data), n[0])
    return True


def add_tls(
    Connection c not None,
    TLSBase context not None,
    *,
    bytes clear_greeting not None=b"",
    bytes secure_greeting not None=b"",
    bint mixed=False,
    double fallback=0.0,
    bytes host not None=b"",
    bint insecure=False,
    double timeout=2.0,
) -> None:
    """Put TLS before a connection that is not started. Once it is, it sends a greeting (INFO; empty for a protocol
    without one), does the handshake within `timeout` seconds, and then begins its session. Without memory the
    connection closes when it is started.

    With `host`, a name or an address, do the side of the handshake that dials, and send no greeting: that host's
    certificate is verified, unless `insecure`.

    Without `secure_greeting`: send `clear_greeting` at once, then do the handshake; with `mixed`, only if the client's
    first byte begins one. With `secure_greeting`: do the handshake, then send it; but when `fallback` is not 0 and no
    byte has come after so many seconds, go on as without `secure_greeting`.
    """
    cdef Tls *t = <Tls *> calloc(1, sizeof(Tls))
    cdef size_t host_n
    if (
        t == NULL
        or not copied(secure_greeting, &t.secure_greeting, &t.secure_n)
        or not copied(clear_greeting, &t.clear_greeting, &t.clear_n)
        or not copied(host + b"\0" if host else b"", &t.host, &host_n)
    ):
        if t != NULL:
            free_tls(&t.base)
        c.close_without_memory()
        return
    t.context = <void *> context
    t.first = t.secure_greeting != NULL
    t.mixed = mixed
    t.insecure = insecure
    t.fallback = fallback
    t.timeout = timeout
    t.timer.owner = <void *> c
    t.timer.kind = T_TRANSPORT
    try:
        c.keep.append(context)
    except MemoryError:
        free_tls(&t.base)
        raise
    # Last: a layer in the chain must be complete.
    transport_push(&c.transport, &t.base, &TLS)
    t.base.owned = c.layers
    c.layers = &t.base


def host_was_wrong(Connection c not None) -> bool:
    """Return whether the handshake has failed because the peer's certificate is not one for the host dialled."""
    cdef Tls *t = tls_of(c)
    return t != NULL and t.wrong_host != 0


def tls_info(Connection c not None) -> dict | None:
    """Return the results of a connection's handshake; None before its end, and without TLS.

    version ("1.2", "1.3"), cipher_suite (IANA's name), server_name (asked for by the client, or ""), first (whether the
    handshake came before the greeting), peer_certs (the peer's certificates as DER, its own first) and verified
    (whether one was required and is good).
    """
    cdef Tls *t = tls_of(c)
    cdef list certs = []
    cdef size_t at = 0
    cdef uint32_t size
    if t == NULL or not load8_acquire(&t.ready):
        return None
    while at < t.chain_len:
        memcpy(&size, t.chain + at, sizeof(size))
        at += sizeof(size)
        certs.append(PyBytes_FromStringAndSize(t.chain + at, size))
        at += size
    return {
        "version": f"1.{t.version - 0x0301}",
        "cipher_suite": (<bytes> t.cipher).decode(),
        "server_name": (<bytes> t.server_name).decode("ascii", "replace") if t.server_name != NULL else "",
        "first": t.first != 0,
        "verified": t.verified != 0,
        "peer_certs": certs,
    }


# -- on the way to TLS -------------------------------------------------------------------------------------------------

cdef void begin(Transport *base) noexcept nogil:
    greet(<Connection> base.connection, <Tls *> base)


cdef void greet(Connection c, Tls *t) noexcept nogil:
    if t.host != NULL:
        start_handshake(c, t)
    elif t.first and t.fallback > 0:
        t.phase = TLS_WAIT
        c.set_timer(&t.timer, duration_of(t.fallback))
    elif t.first:
        start_handshake(c, t)
    else:
        clear_greeting(c, t)


cdef void clear_greeting(Connection c, Tls *t) noexcept nogil:
    """Send the greeting in clear. The handshake follows; with `mixed` it may follow."""
    if outq_append(&t.wire, &c.ps.pool, t.clear_greeting, t.clear_n) < 0:
        c.out_of_memory(TLS_HANDSHAKE_ERROR)
        return
    t.phase = TLS_SNIFF
    c.flush_outbound()
    if load8(&c.closing):
        return
    if t.mixed:
        c.set_timer(&t.timer, duration_of(t.timeout))
    else:
        start_handshake(c, t)


cdef void start_handshake(Connection c, Tls *t) noexcept nogil:
    timer_clear(&c.ps.timers, &t.timer)
    if not (<TLSBase> t.context).allow():
        become_plain(c, t)
        c.session.send_err(c, b"Connection throttling is active. Please try again later.")
        c.close_connection_nogil(MAX_CONNECTIONS_EXCEEDED)
        return
    c.debugf(LOG_TLS_STARTING, t.host != NULL, NULL, 0)
    if not (<TLSBase> t.context).open(t):
        c.out_of_memory(TLS_HANDSHAKE_ERROR)
        return
    t.phase = TLS_HANDSHAKE
    c.set_timer(&t.timer, duration_of(t.timeout))
    if t.host != NULL:
        go_on(c, t)   # the hello comes from the side that dials


cdef void fall_back(Connection c, Tls *t) noexcept nogil:
    """The peer has not begun with a handshake: send the greeting in clear."""
    t.first = 0
    clear_greeting(c, t)


cdef void become_plain(Connection c, Tls *t) noexcept nogil:
    """Go on without TLS: hand over what is to be sent, and leave the chain."""
    cdef OutQueue wire = t.wire
    timer_clear(&c.ps.timers, &t.timer)
    outq_merge(&wire, &c.out, &c.ps.pool)
    c.out = wire
    t.wire.head = t.wire.tail = NULL
    t.wire.bytes = 0
    transport_remove(&c.transport, &t.base)
    if c.out.bytes:
        c.mark_dirty()


cdef Timer *timer_of(Transport *base) noexcept nogil:
    return &(<Tls *> base).timer


cdef void expired(Transport *base) noexcept nogil:
    give_up(<Connection> base.connection, <Tls *> base)


cdef void give_up(Connection c, Tls *t) noexcept nogil:
    """The peer has not begun the handshake, or not finished it, in time."""
    if t.phase == TLS_WAIT:
        fall_back(c, t)
    elif t.phase == TLS_SNIFF:
        become_plain(c, t)
        c.begin_session()
    else:
        complain(c, LOG_TLS_TIMEOUT, 0, NULL, 0)
        c.close_connection_nogil(TLS_HANDSHAKE_ERROR)


cdef bint sniff(Connection c, Tls *t) noexcept nogil:
    """The socket has input, or its end. Begin the handshake if the first byte does; return whether it has begun."""
    cdef char byte = 0
    cdef ssize_t n = recv(c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
    if n < 0:
        if errno != EAGAIN and errno != EINTR:
            c.close_connection_nogil(READ_ERROR)
        return False
    if t.phase == TLS_WAIT:
        if n == 0:
            fall_back(c, t)
            return False
    elif n == 0 or byte != HELLO:
        become_plain(c, t)
        c.begin_session()
        return False
    start_handshake(c, t)
    return not load8(&c.closing)


cdef bint go_on(Connection c, Tls *t) noexcept nogil:
    """Go on with the handshake and the input that was read. Return whether it is done and the connection open."""
    cdef int64_t start = stopwatch_ns()
    cdef int step = (<TLSBase> t.context).handshake(t)
    c.ps.tls_spent += stopwatch_ns() - start
    if step == TLS_ERROR:
        if t.error_code == TLS_NOT_PINNED:
            c.debugf(LOG_TLS_NOT_PINNED, 0, t.error_text, strlen(t.error_text))
        failed(c, t, t.error_code)
        return False
    if t.wire.bytes and not c.want_write:
        c.flush_outbound()
    if step != 1 or load8(&c.closing):
        return False
    complete(c, t)
    return not load8(&c.closing)


cdef void complete(Connection c, Tls *t) noexcept nogil:
    timer_clear(&c.ps.timers, &t.timer)
    c.debugf(LOG_TLS_COMPLETE, 0, NULL, 0)
    c.debugf(LOG_TLS_VERSION, t.version, t.cipher, strlen(t.cipher))
    if t.first:
        c.queue_outbound(t.secure_greeting, t.secure_n)
    elif c.out.bytes:
        c.mark_dirty()
    c.begin_session()


cdef void failed(Connection c, Tls *t, long code) noexcept nogil:
    """Report a failed handshake and close."""
    cdef const char *host = b""
    cdef size_t n
    cdef char *data
    cdef char *p
    t.input_len = 0
    if t.host != NULL:
        host = t.host
    n = sizeof(t.verify_error) + strlen(t.error_text) + strlen(host) + 2 + t.chain_len
    data = <char *> malloc(n)
    if data != NULL:
        p = put(data, <const char *> &t.verify_error, sizeof(t.verify_error))
        p = put(p, t.error_text, strlen(t.error_text) + 1)
        p = put(p, host, strlen(host) + 1)
        if t.chain_len:
            put(p, t.chain, t.chain_len)
        if t.probe:
            complain(c, LOG_TLS_PROBE, code, data, n)
        else:
            c.log(LOG_TLS_ERROR, code, data, n)
        free(data)
    c.close_connection_nogil(TLS_HANDSHAKE_ERROR)


cdef void complain(Connection c, int code, int64_t b, const char *data, size_t n) noexcept nogil:
    """Log what anyone can cause at the ports of clients, but nobody should at those of servers."""
    if c.kind == ROUTER or c.kind == GATEWAY:
        c.log(code, b, data, n)
    else:
        c.debugf(code, b, data, n)


# -- reading and writing -----------------------------------------------------------------------------------------------


cdef long receive(Transport *base, char *to, size_t want, size_t room) noexcept nogil:
    return receive_records(<Connection> base.connection, <Tls *> base, to, want)


cdef long receive_records(Connection c, Tls *t, char *to, size_t want) noexcept nogil:
    """Decrypt what one read of the layer below brings. It may be more of the poller's buffer than was asked for."""
    cdef PollState *ps = c.ps
    cdef Transport *below = t.base.below
    cdef long n
    cdef long got, more
    if t.phase < TLS_HANDSHAKE and not sniff(c, t):
        return -EAGAIN
    if t.phase == TLS_HANDSHAKE:
        if ps.tls_batch != ps.wakeups:
            ps.tls_batch = ps.wakeups
            ps.tls_spent = 0
        if ps.tls_spent > HANDSHAKING:
            return -EAGAIN   # epoll reports it again
    n = below.type.receive(below, ps.rbuf + HEADROOM, ps.rbuf_len - HEADROOM, 0)
    if n <= 0:
        if n == -EAGAIN or n == -EINTR:
            return -EAGAIN
        if t.phase == TLS_HANDSHAKE:
            t.error_text[0] = 0
            t.verify_error = <int> -n
            failed(c, t, TLS_EOF if n == 0 else TLS_SYSCALL)
            return -EAGAIN
        if n < 0:
            return n
        # A peer that closes the socket between two records has left, as without TLS; within one it was cut off.
        return -EIO if (<TLSBase> t.context).inside_record(t) else 0
    t.input = ps.rbuf + HEADROOM
    t.input_len = <size_t> n
    if t.phase == TLS_HANDSHAKE and not go_on(c, t):
        return -EAGAIN
    got = (<TLSBase> t.context).decrypt(t, to if want else ps.rbuf, want or ps.rbuf_len)
    if want and got == <long> want and not t.eof:
        more = (<TLSBase> t.context).decrypt(t, ps.rbuf, ps.rbuf_len)
        if more > 0:
            got += more
        elif more < 0:
            t.eof = 1
    t.input_len = 0
    if t.eof:
        t.base.ended = READ_ERROR if t.phase == TLS_FAILED else CLIENT_CLOSED
    if t.wire.bytes:
        c.mark_dirty()
    if got > 0:
        return got
    return -EAGAIN if got == 0 else (0 if got == TLS_CLOSED else -EIO)


cdef long flush(Transport *base, OutQueue *out) noexcept nogil:
    cdef Tls *t = <Tls *> base
    cdef Transport *below = base.below
    cdef long sent = 0, n
    while True:
        if t.phase == TLS_OPEN and out.bytes:
            if not (<TLSBase> t.context).encrypt(t, out, WIRE):
                return -EIO
        n = below.type.flush(below, &t.wire)
        if n < 0:
            return n
        sent += n
        if t.wire.bytes or t.phase != TLS_OPEN or out.bytes == 0:
            return sent


cdef size_t unsent(const Transport *base, const OutQueue *out) noexcept nogil:
    """Return the bytes on their way. Before the end of the handshake nothing of `out` may leave."""
    cdef const Tls *t = <const Tls *> base
    return base.below.type.unsent(base.below, &t.wire) + (out.bytes if t.phase == TLS_OPEN else 0)


cdef uint32_t chunks(const Transport *base, const OutQueue *out) noexcept nogil:
    return base.below.type.chunks(base.below, &(<const Tls *> base).wire) + outq_chunks(out)


cdef void end(Transport *base) noexcept nogil:
    cdef Tls *t = <Tls *> base
    timer_clear(&base.ps.timers, &(<Tls *> base).timer)
    (<TLSBase> t.context).close(t)
    base.below.type.flush(base.below, &t.wire)
    outq_clear(&t.wire, &base.ps.pool)


cdef void free_tls(Transport *base) noexcept nogil:
    cdef Tls *t = <Tls *> base
    outq_free(&t.wire)
    free(t.secure_greeting)
    free(t.clear_greeting)
    free(t.host)
    free(t.server_name)
    free(t.chain)
    free(t)


cdef Tls *tls_of(Connection c) noexcept nogil:
    """Return the layer that add_tls() has made; NULL: none."""
    cdef Transport *layer = c.layers
    while layer != NULL and layer.type != &TLS:
        layer = layer.owned
    return <Tls *> layer


TLS.begin = begin
TLS.receive = receive
TLS.more = NULL
TLS.flush = flush
TLS.unsent = unsent
TLS.chunks = chunks
TLS.timer = timer_of
TLS.expired = expired
TLS.end = end
TLS.free = free_tls
