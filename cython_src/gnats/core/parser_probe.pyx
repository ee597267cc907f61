"""A parser that records what it is told: the protocol state machine under test, with bytes alone."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.parser cimport PARSE_CLOSED, PARSE_OK, PARSE_PUNT, Parser
from gnats.core.slice cimport Slice
from gnats.includes.atomics cimport store8


cdef bytes text(const Slice *s):
    return s.p[:s.n] if s.p != NULL else None


cdef class ParserProbe(Parser):
    """Feed it bytes and look at `calls`: tuples of a handler's name and its arguments.

    `kind` is a connection kind (gnats.core.parser). A CONNECT or INFO stops the parser as it does in a connection;
    feed() then goes on with what is left.
    """

    cdef readonly list calls

    def __init__(
        self, int kind=0, *, bint headers=True, bint auth=False, bint pedantic=False, int max_payload=1048576,
        int max_control_line=4096, bint has_account=True,
    ):
        self.kind = kind
        self.headers = headers
        self.auth_set = auth
        self.pedantic = pedantic
        self.max_payload = max_payload
        self.max_control_line = max_control_line
        self.has_account = has_account
        self.calls = []

    @property
    def state(self) -> int:
        """The state's number, 0 between operations."""
        return self.state

    def feed(self, bytes data not None) -> bool:
        """Parse a read; False when the connection is to be closed. The buffer is gone afterwards, as in real life."""
        cdef size_t n = len(data), at = 0
        cdef char *buf = <char *> malloc(n or 1)
        cdef int rc = PARSE_OK
        if buf == NULL:
            raise MemoryError
        memcpy(buf, <const char *> data, n)
        with nogil:
            while at < n or rc == PARSE_PUNT:
                rc = self.parse(buf + at, n - at)
                if rc != PARSE_PUNT:
                    break
                at += self.consumed
                if at == n:
                    rc = PARSE_OK
        free(buf)
        return rc == PARSE_OK

    cdef int process_inbound_msg(self) noexcept nogil:
        with gil:
            if self.pa.nqueues:
                queues = [text(&self.pa.queues[i]) for i in range(self.pa.nqueues)]
            else:
                queues = []
            self.calls.append((
                "msg", text(&self.pa.m.subject), text(&self.pa.m.reply), self.pa.hdr, self.pa.m.data[:self.pa.m.n],
                text(&self.pa.account), text(&self.pa.origin), queues,
            ) if self.kind else (
                "msg", text(&self.pa.m.subject), text(&self.pa.m.reply), self.pa.hdr, self.pa.m.data[:self.pa.m.n]))
        return PARSE_OK

    cdef int record(self, const char *name, const char *arg, size_t n, int rc) noexcept nogil:
        with gil:
            self.calls.append((name.decode(), arg[:n]))
        return rc

    cdef int process_sub(self, char *arg, size_t n) noexcept nogil:
        return self.record(b"sub", arg, n, PARSE_OK)

    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil:
        return self.record(b"unsub", arg, n, PARSE_OK)

    cdef int process_remote_sub(self, char *arg, size_t n) noexcept nogil:
        return self.record(b"remote_sub", arg, n, PARSE_OK)

    cdef int process_remote_unsub(self, char *arg, size_t n) noexcept nogil:
        return self.record(b"remote_unsub", arg, n, PARSE_OK)

    cdef int process_account_sub(self, char *arg, size_t n, bint add) noexcept nogil:
        return self.record(b"account_sub" if add else b"account_unsub", arg, n, PARSE_OK)

    cdef int process_ping(self) noexcept nogil:
        return self.record(b"ping", b"", 0, PARSE_OK)

    cdef int process_pong(self) noexcept nogil:
        return self.record(b"pong", b"", 0, PARSE_OK)

    cdef int process_connect(self, char *arg, size_t n) noexcept nogil:
        self.auth_set = 0
        return self.record(b"connect", arg, n, PARSE_PUNT)

    cdef int process_info(self, char *arg, size_t n) noexcept nogil:
        return self.record(b"info", arg, n, PARSE_PUNT)

    cdef int process_err(self, char *arg, size_t n) noexcept nogil:
        store8(&self.closing, 1)
        return self.record(b"err", arg, n, PARSE_CLOSED)

    cdef int process_invalid_publish_subject(self) noexcept nogil:
        return self.record(b"invalid_publish_subject", b"", 0, PARSE_OK)

    cdef int auth_violation(self) noexcept nogil:
        return self.record(b"auth_violation", b"", 0, PARSE_CLOSED)

    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        with gil:
            self.calls.append(("violation", code))
        return PARSE_CLOSED
