"""A parser that records its calls: tests of the protocol state machine with bytes alone."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.messages.message cimport RemoteArgs
from gnats.core.protocol.parser cimport (
    PARSE_CLOSED,
    PARSE_OK,
    PARSE_PUNT,
    PARSE_TURN_OVER,
    Parser,
    ParserHandlers,
    PubArg,
    parse,
    parser_free,
    parser_init,
)
from gnats.core.runtime.const cimport MAX_CONTROL_LINE_SIZE, MAX_PAYLOAD_SIZE
from gnats.core.runtime.slice cimport Slice


cdef bytes text(const Slice *s):
    return s.p[:s.n] if s.p != NULL else None


cdef ParserHandlers RECORDED


cdef class ParserProbe:
    """A parser; `calls` are tuples of a handler's name and its arguments.

    `kind` is a connection kind (gnats.core.runtime.kinds). A CONNECT or INFO stops the parser, as in a connection;
    feed() then goes on with the rest. With `short_turns`, each message ends a turn.
    """

    cdef Parser parser
    cdef bint short_turns
    cdef readonly list calls
    cdef readonly list turns      # bytes parsed in each turn that has ended

    def __init__(
        self, int kind=0, *, bint headers=True, bint auth=False, bint pedantic=False, int max_payload=MAX_PAYLOAD_SIZE,
        int max_control_line=MAX_CONTROL_LINE_SIZE, bint has_account=True, bint short_turns=False,
    ):
        parser_init(&self.parser, kind, &RECORDED, <void *> self)
        self.parser.headers = headers
        self.parser.auth_set = auth
        self.parser.pedantic = pedantic
        self.parser.max_payload = max_payload
        self.parser.max_control_line = max_control_line
        self.parser.has_account = has_account
        self.short_turns = short_turns
        self.calls = []
        self.turns = []

    def __dealloc__(self):
        parser_free(&self.parser)

    @property
    def state(self) -> int:
        """The state machine's state, 0 between operations."""
        return self.parser.state

    def feed(self, bytes data not None) -> bool:
        """Parse a read. Return False when the connection must be closed. Frees the buffer afterwards."""
        cdef size_t n = len(data), at = 0
        cdef char *buf = <char *> malloc(n or 1)
        cdef int rc = PARSE_OK
        if buf == NULL:
            raise MemoryError
        memcpy(buf, <const char *> data, n)
        with nogil:
            while at < n or rc == PARSE_PUNT:
                rc = parse(&self.parser, buf + at, n - at)
                if rc == PARSE_TURN_OVER:
                    with gil:
                        self.turns.append(self.parser.consumed)
                elif rc != PARSE_PUNT:
                    break
                at += self.parser.consumed
                if at == n:
                    rc = PARSE_OK
        free(buf)
        return rc == PARSE_OK


cdef int record(void *owner, const char *name, const char *arg, size_t n, int rc) noexcept nogil:
    with gil:
        (<ParserProbe> owner).calls.append((name.decode(), arg[:n]))
    return rc


cdef int process_inbound_msg(void *owner) noexcept nogil:
    with gil:
        record_msg(<ParserProbe> owner)
    end_turn(<ParserProbe> owner)
    return PARSE_OK


cdef void record_msg(ParserProbe probe) noexcept:
    cdef PubArg *pa = &probe.parser.pa
    cdef const RemoteArgs *r = pa.m.remote
    call = ("msg", text(&pa.m.subject), text(&pa.m.reply), pa.hdr, pa.m.data[:pa.m.n])
    if probe.parser.kind and r == NULL:
        call += None, None, []
    elif probe.parser.kind:
        call += text(&r.account), text(&r.origin), [text(&r.queues[i]) for i in range(r.nqueues)]
    probe.calls.append(call)


cdef int process_sub(void *owner, char *arg, size_t n) noexcept nogil:
    return record(owner, b"sub", arg, n, PARSE_OK)


cdef int process_unsub(void *owner, char *arg, size_t n) noexcept nogil:
    return record(owner, b"unsub", arg, n, PARSE_OK)


cdef int process_account_sub(void *owner, char *arg, size_t n, bint add) noexcept nogil:
    return record(owner, b"account_sub" if add else b"account_unsub", arg, n, PARSE_OK)


cdef int process_ping(void *owner) noexcept nogil:
    return record(owner, b"ping", b"", 0, PARSE_OK)


cdef int process_pong(void *owner) noexcept nogil:
    return record(owner, b"pong", b"", 0, PARSE_OK)


cdef int process_connect(void *owner, char *arg, size_t n) noexcept nogil:
    allow_all_verbs(<ParserProbe> owner)
    return record(owner, b"connect", arg, n, PARSE_PUNT)


cdef void allow_all_verbs(ParserProbe probe) noexcept nogil:
    probe.parser.auth_set = 0


cdef int process_info(void *owner, char *arg, size_t n) noexcept nogil:
    return record(owner, b"info", arg, n, PARSE_PUNT)


cdef int process_err(void *owner, char *arg, size_t n) noexcept nogil:
    return record(owner, b"err", arg, n, PARSE_CLOSED)


cdef int process_invalid_publish_subject(void *owner) noexcept nogil:
    return record(owner, b"invalid_publish_subject", b"", 0, PARSE_OK)


cdef int auth_violation(void *owner) noexcept nogil:
    return record(owner, b"auth_violation", b"", 0, PARSE_CLOSED)


cdef int violation(void *owner, int code, int64_t b, const char *data, size_t n) noexcept nogil:
    with gil:
        (<ParserProbe> owner).calls.append(("violation", code))
    return PARSE_CLOSED


cdef void end_turn(ParserProbe probe) noexcept nogil:
    if probe.short_turns:
        probe.parser.until = 0


cdef bint turn_over(void *owner) noexcept nogil:
    return (<ParserProbe> owner).short_turns


cdef void trace_in_op(void *owner, const char *op, const char *arg, size_t n) noexcept nogil:
    pass   # a probe does not trace


RECORDED.process_inbound_msg = process_inbound_msg
RECORDED.process_sub = process_sub
RECORDED.process_unsub = process_unsub
RECORDED.process_account_sub = process_account_sub
RECORDED.process_ping = process_ping
RECORDED.process_pong = process_pong
RECORDED.process_connect = process_connect
RECORDED.process_info = process_info
RECORDED.process_err = process_err
RECORDED.process_invalid_publish_subject = process_invalid_publish_subject
RECORDED.auth_violation = auth_violation
RECORDED.violation = violation
RECORDED.turn_over = turn_over
RECORDED.trace_in_op = trace_in_op
