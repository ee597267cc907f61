"""A connection that may speak TLS; see secure.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.connection cimport (
    MAX_CONNECTIONS_EXCEEDED,
    READ_ERROR,
    T_TLS,
    TLS_HANDSHAKE_ERROR,
    CTL_START,
    Connection,
)
from gnats.core.outbound cimport OutQueue, outq_append, outq_clear, outq_free, outq_merge, outq_send
from gnats.core.pollstate cimport PollState
from gnats.core.records cimport (
    LOG_TLS_COMPLETE,
    LOG_TLS_ERROR,
    LOG_TLS_NOT_PINNED,
    LOG_TLS_PROBE,
    LOG_TLS_STARTING,
    LOG_TLS_TIMEOUT,
    LOG_TLS_VERSION,
)
from gnats.core.timers cimport timer_clear
from gnats.core.tlsstate cimport (
    TLS_CLOSED,
    TLS_EOF,
    TLS_ERROR,
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
from gnats.includes.linux cimport EAGAIN, EINTR, EIO, MSG_DONTWAIT, MSG_PEEK, errno, monotonic_ns, recv, ssize_t
from gnats.includes.times cimport duration_of

cdef enum:
    HELLO = 0x16          # the first byte of a TLS connection
    # Records are read behind so much room, and decrypted to the front of the same buffer: the plain bytes of these and
    # of one that was begun before are never more.
    HEADROOM = 32 * 1024
    WIRE = 256 * 1024     # of records waiting for the socket; a whole queue is not encrypted ahead
    TURN = 1000000        # ns that handshakes may take of a batch, after which they wait for the next


cdef bint copied(bytes data, char **copy, size_t *n):
    """Make a copy that is ours, NULL for nothing; False without memory."""
    n[0] = <size_t> PyBytes_GET_SIZE(data)
    if n[0] == 0:
        return True
    copy[0] = <char *> malloc(n[0])
    if copy[0] == NULL:
        return False
    memcpy(copy[0], PyBytes_AS_STRING(data), n[0])
    return True


cdef class SecureConnection(Connection):
    """A Connection with start_tls() beside start()."""

    def __dealloc__(self):
        cdef Tls *t = self.tls_state
        if t == NULL:
            return
        outq_free(&t.wire)
        free(t.secure_info)
        free(t.clear_info)
        free(t.server_name)
        free(t.chain)
        free(t)

    def start_tls(
        self,
        TLSBase context not None,
        *,
        bytes clear_info not None,
        bytes secure_info not None=b"",
        bint mixed=False,
        double fallback=0.0,
        double timeout=2.0,
        bint expect_connect,
        double auth_timeout=0.0,
    ) -> None:
        """Hand the connection to its poller, which greets it, shakes hands within `timeout` seconds, and reads.

        Without `secure_info`, `clear_info` is sent at once and the handshake follows; with `mixed` only if the
        client's first byte begins one. With `secure_info` the handshake comes first and then that is sent, unless
        `fallback` is not 0 and no byte has come after so many seconds: then it is as without.
        Else as start().
        """
        cdef Tls *t = <Tls *> calloc(1, sizeof(Tls))
        self.tls_state = t
        if (
            t == NULL
            or not copied(secure_info, &t.secure_info, &t.secure_len)
            or not copied(clear_info, &t.clear_info, &t.clear_len)
        ):
            self.close_without_memory()
            self.request(CTL_START, 0)
            return
        t.context = <void *> context
        t.first = t.secure_info != NULL
        t.mixed = mixed
        t.fallback = fallback
        t.timeout = timeout
        t.timer.owner = <void *> self
        t.timer.kind = T_TLS
        self.keep.append(context)
        self.tls = t
        self.auth_set = expect_connect
        self.auth_timeout = duration_of(auth_timeout) if expect_connect else 0
        self.request(CTL_START, 0)

    def tls_info(self) -> dict | None:
        """What the handshake has settled, None before that and without TLS.

        version ("1.2", "1.3"), cipher_suite (IANA's name), server_name (as asked for by the client, or ""), first
        (whether the handshake came before INFO), peer_certs (the client's certificates as DER, its own first) and
        verified (whether that was asked for and is good).
        """
        cdef Tls *t = self.tls_state
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

    # -- on the way to TLS ---------------------------------------------------------------------------------------

    cdef void tls_begin(self) noexcept nogil:
        cdef Tls *t = self.tls
        t.pool = &self.ps.pool
        if t.first and t.fallback > 0:
            t.phase = TLS_WAIT
            self.set_timer(&t.timer, duration_of(t.fallback))
        elif t.first:
            self.tls_start_handshake()
        else:
            self.tls_clear_info()

    cdef void tls_clear_info(self) noexcept nogil:
        """Send INFO in clear; a handshake follows, or may follow."""
        cdef Tls *t = self.tls
        if outq_append(&t.wire, t.pool, t.clear_info, t.clear_len) < 0:
            self.out_of_memory(TLS_HANDSHAKE_ERROR)
            return
        t.phase = TLS_SNIFF
        self.flush_outbound()
        if load8(&self.closing):
            return
        if t.mixed:
            self.set_timer(&t.timer, duration_of(t.timeout))
        else:
            self.tls_start_handshake()

    cdef void tls_start_handshake(self) noexcept nogil:
        cdef Tls *t = self.tls
        timer_clear(&self.ps.timers, &t.timer)
        if not (<TLSBase> t.context).allow():
            self.tls_become_plain()
            self.send_err(b"Connection throttling is active. Please try again later.")
            self.close_connection_nogil(MAX_CONNECTIONS_EXCEEDED)
            return
        self.debugf(LOG_TLS_STARTING, 0, NULL, 0)
        if not (<TLSBase> t.context).open(t):
            self.out_of_memory(TLS_HANDSHAKE_ERROR)
            return
        t.phase = TLS_HANDSHAKE
        self.set_timer(&t.timer, duration_of(t.timeout))

    cdef void tls_fall_back(self) noexcept nogil:
        """No handshake has come first."""
        self.tls.first = 0
        self.tls_clear_info()

    cdef void tls_become_plain(self) noexcept nogil:
        """Do without TLS from here on."""
        cdef Tls *t = self.tls
        cdef OutQueue wire = t.wire
        timer_clear(&self.ps.timers, &t.timer)
        outq_merge(&wire, &self.out, t.pool)
        self.out = wire
        t.wire.head = t.wire.tail = NULL
        t.wire.bytes = 0
        self.tls = NULL
        if self.out.bytes:
            self.mark_dirty()

    cdef void tls_expired(self) noexcept nogil:
        if self.tls.phase == TLS_WAIT:
            self.tls_fall_back()
        elif self.tls.phase == TLS_SNIFF:
            self.tls_become_plain()
            self.begin_protocol()
        else:
            self.debugf(LOG_TLS_TIMEOUT, 0, NULL, 0)
            self.close_connection_nogil(TLS_HANDSHAKE_ERROR)

    cdef bint tls_sniff(self) noexcept nogil:
        """Something has come, or the end: begin the handshake if it is one."""
        cdef char byte = 0
        cdef ssize_t n = recv(self.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)
        if n < 0:
            if errno != EAGAIN and errno != EINTR:
                self.close_connection_nogil(READ_ERROR)
            return False
        if self.tls.phase == TLS_WAIT:
            if n == 0:
                self.tls_fall_back()
                return False
        elif n == 0 or byte != HELLO:
            self.tls_become_plain()
            self.begin_protocol()
            return False
        self.tls_start_handshake()
        return not load8(&self.closing)

    cdef bint tls_go_on(self) noexcept nogil:
        """Go on with the handshake, with the input that was read; whether it is done."""
        cdef Tls *t = self.tls
        cdef int64_t start = monotonic_ns()
        cdef int step = (<TLSBase> t.context).handshake(t)
        self.ps.tls_spent += monotonic_ns() - start
        if step == TLS_ERROR:
            if t.error_code == TLS_NOT_PINNED:
                self.debugf(LOG_TLS_NOT_PINNED, 0, t.error_text, strlen(t.error_text))
            self.tls_failed(t.error_code)
            return False
        if t.wire.bytes and not self.want_write:
            self.flush_outbound()
        if step != 1 or load8(&self.closing):
            return False
        self.tls_complete()
        return not load8(&self.closing)

    cdef void tls_complete(self) noexcept nogil:
        cdef Tls *t = self.tls
        timer_clear(&self.ps.timers, &t.timer)
        self.debugf(LOG_TLS_COMPLETE, 0, NULL, 0)
        self.debugf(LOG_TLS_VERSION, t.version, t.cipher, strlen(t.cipher))
        if t.first:
            self.queue_outbound(t.secure_info, t.secure_len)
        elif self.out.bytes:
            self.mark_dirty()
        self.begin_protocol()

    cdef void tls_failed(self, long code) noexcept nogil:
        """Report a failed handshake and close."""
        cdef Tls *t = self.tls
        cdef size_t text = strlen(t.error_text) + 1
        cdef size_t n = sizeof(t.verify_error) + text + t.chain_len
        cdef char *data = <char *> malloc(n)
        t.input_len = 0
        if data != NULL:
            memcpy(data, &t.verify_error, sizeof(t.verify_error))
            memcpy(data + sizeof(t.verify_error), t.error_text, text)
            if t.chain_len:
                memcpy(data + sizeof(t.verify_error) + text, t.chain, t.chain_len)
            if t.probe:
                self.debugf(LOG_TLS_PROBE, code, data, n)
            else:
                self.log(LOG_TLS_ERROR, code, data, n)
            free(data)
        self.close_connection_nogil(TLS_HANDSHAKE_ERROR)

    # -- reading and writing -------------------------------------------------------------------------------------

    cdef long tls_receive(self, size_t want) noexcept nogil:
        """As much as one read of the socket brings: the rest of a split payload, `want` bytes, to its place, what
        follows it to the poller's buffer."""
        cdef Tls *t = self.tls
        cdef PollState *ps = self.ps
        cdef ssize_t n
        cdef long got, more
        if t.phase < TLS_HANDSHAKE and not self.tls_sniff():
            return -EAGAIN
        if t.phase == TLS_HANDSHAKE:
            if ps.tls_turn != ps.wakeups:
                ps.tls_turn = ps.wakeups
                ps.tls_spent = 0
            if ps.tls_spent > TURN:
                return -EAGAIN   # epoll reports it again
        n = recv(self.fd, ps.rbuf + HEADROOM, ps.rbuf_len - HEADROOM, MSG_DONTWAIT)
        if n <= 0:
            if n < 0 and (errno == EAGAIN or errno == EINTR):
                return -EAGAIN
            if t.phase == TLS_HANDSHAKE:
                t.error_text[0] = 0
                t.verify_error = errno if n < 0 else 0
                self.tls_failed(TLS_EOF if n == 0 else TLS_SYSCALL)
                return -EAGAIN
            if n < 0:
                return -errno
            # Who ends without a word between two records has left, as without TLS; in one of them it was cut off.
            return -EIO if (<TLSBase> t.context).inside_record(t) else 0
        t.input = ps.rbuf + HEADROOM
        t.input_len = <size_t> n
        if t.phase == TLS_HANDSHAKE and not self.tls_go_on():
            return -EAGAIN
        got = (<TLSBase> t.context).decrypt(t, self.msg_buf + self.msg_len if want else ps.rbuf, want or ps.rbuf_len)
        if want and got == <long> want and not t.eof:
            more = (<TLSBase> t.context).decrypt(t, ps.rbuf, ps.rbuf_len)
            if more > 0:
                got += more
            elif more < 0:
                t.eof = 1
        t.input_len = 0
        if t.wire.bytes:
            self.mark_dirty()
        if got > 0:
            return got
        return -EAGAIN if got == 0 else (0 if got == TLS_CLOSED else -EIO)

    cdef long tls_flush(self) noexcept nogil:
        cdef Tls *t = self.tls
        cdef long sent = 0, n
        while True:
            if t.phase == TLS_OPEN and self.out.bytes:
                if not (<TLSBase> t.context).encrypt(t, &self.out, WIRE):
                    return -EIO
            n = outq_send(&t.wire, t.pool, self.fd)
            if n < 0:
                return n
            sent += n
            if t.wire.bytes or t.phase != TLS_OPEN or self.out.bytes == 0:
                return sent

    cdef void tls_end(self) noexcept nogil:
        """Say what there is to say to a peer that reads it, and forget the rest."""
        cdef Tls *t = self.tls
        timer_clear(&self.ps.timers, &t.timer)
        (<TLSBase> t.context).close(t)
        outq_send(&t.wire, t.pool, self.fd)
        outq_clear(&t.wire, t.pool)
        self.tls = NULL
