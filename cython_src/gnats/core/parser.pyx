"""The protocol state machine; see parser.pxd.

States are numbered as nats-server numbers them: they appear in a log line that people search for. Verbs are walked
through one table; lines, payloads and the publish fast path are code.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcpy, memset

from gnats.core.kinds cimport CLIENT, GATEWAY, LEAF, ROUTER
from gnats.core.subject cimport is_valid_literal_subject
from gnats.includes.atomics cimport load8, unlikely

cdef enum:
    OP_START, OP_PLUS, OP_PLUS_O, OP_PLUS_OK, OP_MINUS, OP_MINUS_E, OP_MINUS_ER, OP_MINUS_ERR, OP_MINUS_ERR_SPC,
    MINUS_ERR_ARG, OP_C, OP_CO, OP_CON, OP_CONN, OP_CONNE, OP_CONNEC, OP_CONNECT, CONNECT_ARG, OP_H, OP_HP, OP_HPU,
    OP_HPUB, OP_HPUB_SPC, HPUB_ARG, OP_HM, OP_HMS, OP_HMSG, OP_HMSG_SPC, HMSG_ARG, OP_P, OP_PU, OP_PUB, OP_PUB_SPC,
    PUB_ARG, OP_PI, OP_PIN, OP_PING, OP_PO, OP_PON, OP_PONG, MSG_PAYLOAD, MSG_END_R, MSG_END_N, OP_S, OP_SU, OP_SUB,
    OP_SUB_SPC, SUB_ARG, OP_A, OP_ASUB, OP_ASUB_SPC, ASUB_ARG, OP_AUSUB, OP_AUSUB_SPC, AUSUB_ARG, OP_L, OP_LS, OP_R,
    OP_RS, OP_U, OP_UN, OP_UNS, OP_UNSU, OP_UNSUB, OP_UNSUB_SPC, UNSUB_ARG, OP_M, OP_MS, OP_MSG, OP_MSG_SPC, MSG_ARG,
    OP_I, OP_IN, OP_INF, OP_INFO, INFO_ARG, NSTATES

cdef extern from * nogil:
    """
    #include <stdint.h>
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif
    /* Bit i is set when p[i] is a blank or a control character; reads 64 bytes. */
    static inline uint64_t gnats_separators(const char *p)
    {
        uint64_t mask = 0;
    #ifdef __SSE2__
        const __m128i blank = _mm_set1_epi8(32);
        for (int i = 0; i < 4; i++) {
            __m128i chunk = _mm_loadu_si128((const __m128i *)(p + 16 * i));
            uint64_t bits = (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(chunk, blank), chunk));
            mask |= bits << (16 * i);
        }
    #else
        for (int i = 0; i < 64; i++)
            mask |= (uint64_t)((unsigned char)p[i] <= 32) << i;
    #endif
        return mask;
    }
    """
    uint64_t separators "gnats_separators"(const char *p)
    int ctz64 "__builtin_ctzll"(uint64_t x)

cdef enum:
    LOOK_AHEAD = 64       # bytes that separators() reads
    NO_STATE = 255
    MAX_CLIENT_ARGS = 5   # one more than any verb of a client takes

# how a state reads its next byte
cdef enum:
    BY_TABLE = 0
    SKIP_BLANKS = 1       # blanks, then the first byte of an argument
    ARGUMENT = 2          # up to a line feed
    REST_OF_LINE = 3      # anything up to a line feed
    PAYLOAD = 4

cdef uint8_t[NSTATES][256] NEXT
cdef uint8_t[NSTATES] HOW
cdef uint8_t[NSTATES] ARG_OF   # the argument state that follows SKIP_BLANKS


def _build_tables() -> None:
    cdef int state
    verbs = {
        OP_START: {"P": OP_P, "H": OP_H, "S": OP_S, "U": OP_U, "R": OP_R, "L": OP_L, "A": OP_A, "C": OP_C, "I": OP_I,
                   "+": OP_PLUS, "-": OP_MINUS},
        OP_PLUS: {"O": OP_PLUS_O}, OP_PLUS_O: {"K": OP_PLUS_OK},
        OP_MINUS: {"E": OP_MINUS_E}, OP_MINUS_E: {"R": OP_MINUS_ER}, OP_MINUS_ER: {"R": OP_MINUS_ERR},
        OP_C: {"O": OP_CO}, OP_CO: {"N": OP_CON}, OP_CON: {"N": OP_CONN}, OP_CONN: {"E": OP_CONNE},
        OP_CONNE: {"C": OP_CONNEC}, OP_CONNEC: {"T": OP_CONNECT},
        OP_H: {"P": OP_HP, "M": OP_HM}, OP_HP: {"U": OP_HPU}, OP_HPU: {"B": OP_HPUB},
        OP_HM: {"S": OP_HMS}, OP_HMS: {"G": OP_HMSG},
        OP_P: {"U": OP_PU, "I": OP_PI, "O": OP_PO}, OP_PU: {"B": OP_PUB},
        OP_PI: {"N": OP_PIN}, OP_PIN: {"G": OP_PING}, OP_PO: {"N": OP_PON}, OP_PON: {"G": OP_PONG},
        OP_S: {"U": OP_SU}, OP_SU: {"B": OP_SUB},
        OP_A: {"+": OP_ASUB, "-": OP_AUSUB},
        OP_L: {"S": OP_LS, "M": OP_M}, OP_LS: {"+": OP_SUB, "-": OP_UNSUB},
        OP_R: {"S": OP_RS, "M": OP_M}, OP_RS: {"+": OP_SUB, "-": OP_UNSUB},
        OP_U: {"N": OP_UN}, OP_UN: {"S": OP_UNS}, OP_UNS: {"U": OP_UNSU}, OP_UNSU: {"B": OP_UNSUB},
        OP_M: {"S": OP_MS}, OP_MS: {"G": OP_MSG},
        OP_I: {"N": OP_IN}, OP_IN: {"F": OP_INF}, OP_INF: {"O": OP_INFO},
    }
    blanks = {
        OP_MINUS_ERR: OP_MINUS_ERR_SPC, OP_HPUB: OP_HPUB_SPC, OP_HMSG: OP_HMSG_SPC, OP_PUB: OP_PUB_SPC,
        OP_SUB: OP_SUB_SPC, OP_ASUB: OP_ASUB_SPC, OP_AUSUB: OP_AUSUB_SPC, OP_UNSUB: OP_UNSUB_SPC, OP_MSG: OP_MSG_SPC,
    }
    arguments = {
        OP_MINUS_ERR_SPC: MINUS_ERR_ARG, OP_HPUB_SPC: HPUB_ARG, OP_HMSG_SPC: HMSG_ARG, OP_PUB_SPC: PUB_ARG,
        OP_SUB_SPC: SUB_ARG, OP_ASUB_SPC: ASUB_ARG, OP_AUSUB_SPC: AUSUB_ARG, OP_UNSUB_SPC: UNSUB_ARG,
        OP_MSG_SPC: MSG_ARG, OP_CONNECT: CONNECT_ARG, OP_INFO: INFO_ARG,
    }
    memset(NEXT, NO_STATE, sizeof(NEXT))
    memset(HOW, BY_TABLE, sizeof(HOW))
    for state, edges in verbs.items():
        for letter, following in edges.items():
            NEXT[state][ord(letter)] = NEXT[state][ord(letter.lower())] = following
    state = OP_A
    NEXT[state][ord("u")] = OP_AUSUB
    for state, following in blanks.items():
        NEXT[state][ord(" ")] = NEXT[state][ord("\t")] = following
    for state, following in arguments.items():
        HOW[state] = SKIP_BLANKS
        ARG_OF[state] = following
        HOW[following] = ARGUMENT
    for state in (OP_PING, OP_PONG, OP_PLUS_OK):
        HOW[state] = REST_OF_LINE
    for state in (MSG_PAYLOAD, MSG_END_R, MSG_END_N):
        HOW[state] = PAYLOAD


_build_tables()


cdef int parse_size(const char *p, size_t n) noexcept nogil:
    """Up to nine digits, or -1."""
    cdef int value = 0
    cdef size_t i
    if n == 0 or n > 9:
        return -1
    for i in range(n):
        if p[i] < c'0' or p[i] > c'9':
            return -1
        value = value * 10 + (p[i] - c'0')
    return value


cdef inline void move(Slice *s, char *old, char *new) noexcept nogil:
    if s.p != NULL:
        s.p = new + (s.p - old)


cdef inline void hand_on(Parser parser, char *data) noexcept nogil:
    """Have the message in hand processed, whose payload is complete."""
    cdef Message *m = &parser.pa.m
    m.data = data
    m.n = <size_t> parser.pa.size
    m.hdr = <size_t> parser.pa.hdr if parser.pa.hdr > 0 else 0
    m.ended = 1
    parser.process_inbound_msg()


cdef class Parser:
    """See parser.pxd; `gnats.core.parser_probe` drives one with bytes alone."""

    def __cinit__(self, *args, **kwargs):
        self.state = OP_START
        self.pa.hdr = -1
        self.max_payload = 1048576
        self.max_control_line = 4096
        self.has_account = 1

    def __dealloc__(self):
        self.parser_free()

    cdef void parser_free(self) noexcept nogil:
        free(self.arg_buf)
        free(self.msg_buf)
        free(self.argv)
        self.arg_buf = self.msg_buf = NULL
        self.argv = NULL
        self.arg_len = self.arg_cap = self.msg_len = 0
        self.argv_cap = 0

    cdef int parse(self, char *buf, size_t n) noexcept nogil:
        """Feed bytes. PARSE_OK when all were taken, PARSE_PUNT when parsing must wait after `consumed` bytes,
        PARSE_CLOSED when nothing more is to be read."""
        cdef size_t i = 0
        cdef uint8_t b, following, how
        cdef char *nl
        cdef int rc
        while i < n:
            how = HOW[self.state]
            if how == BY_TABLE:
                b = <uint8_t> buf[i]
                if self.state == OP_START:
                    if (b | 0x20) == c'p' or (b | 0x20) == c'h':
                        rc = self.fast_pub(buf, n, &i)
                        if rc < 0:
                            return rc
                        if rc > 0:
                            continue
                    self.op = b
                    if self.auth_set and (b | 0x20) != c'c':
                        return self.auth_violation()
                    if self.kind == CLIENT:
                        if (b | 0x20) == c'r' or (b | 0x20) == c'l' or (b | 0x20) == c'a':
                            return self.bad_operation(buf, n, i)
                    elif (b | 0x20) == c'l' and self.kind != LEAF and self.kind != ROUTER:
                        return self.bad_operation(buf, n, i)
                following = NEXT[self.state][b]
                if following == NO_STATE:
                    return self.bad_operation(buf, n, i)
                self.state = following
                i += 1
            elif how == SKIP_BLANKS:
                if buf[i] != c' ' and buf[i] != c'\t':
                    self.state = ARG_OF[self.state]
                    self.arg_start = i
                    self.arg_len = 0
                    # the first byte is part of the argument whatever it is
                i += 1
            elif how == ARGUMENT:
                nl = <char *> memchr(buf + i, c'\n', n - i)
                if nl == NULL:
                    break
                if memchr(buf + i, c'\r', nl - (buf + i)) != NULL:
                    self.drop = 1
                i = nl - buf
                self.rest.p = nl + 1
                self.rest.n = n - i - 1
                if self.arg_len:
                    rc = self.save_arg(buf, i)
                    if rc != PARSE_OK:
                        return rc
                    rc = self.end_arg(self.state, self.arg_buf, self.arg_len - self.drop, True)
                else:
                    rc = self.end_arg(self.state, buf + self.arg_start, i - self.arg_start - self.drop, False)
                i += 1
                self.drop = 0
                self.rest.n = 0
                if self.state != MSG_PAYLOAD:
                    self.drop_arg()
                if rc != PARSE_OK:
                    self.consumed = i
                    return rc
                if self.state == MSG_PAYLOAD and i == n:
                    rc = self.payload(buf, n, &i)
                    if rc != PARSE_OK:
                        return rc
            elif how == REST_OF_LINE:
                if buf[i] == c'\n':
                    rc = PARSE_OK
                    if self.state == OP_PING:
                        rc = self.process_ping()
                    elif self.state == OP_PONG:
                        rc = self.process_pong()
                    self.state = OP_START
                    if rc != PARSE_OK:
                        self.consumed = i + 1
                        return rc
                i += 1
            else:
                rc = self.payload(buf, n, &i)
                if rc != PARSE_OK:
                    return rc
        if HOW[self.state] == ARGUMENT:
            # A line that goes on in the next read: keep what is here of it. Its first byte may be anything.
            i = self.arg_start if self.arg_len == 0 else 0
            if memchr(buf + i + (self.arg_len == 0), c'\r', n - i - (self.arg_len == 0)) != NULL:
                self.drop = 1
            return self.save_arg(buf + i, n - i)
        return PARSE_OK

    cdef int bad_operation(self, const char *buf, size_t n, size_t at) noexcept nogil:
        return self.violation(BAD_OPERATION, (<int64_t> self.state << 32) | <int64_t> at, buf + at, n - at)

    cdef int save_arg(self, const char *p, size_t n) noexcept nogil:
        """Keep a part of a line. A violation when the line is over the limit (a CR at its end not counted)."""
        cdef int64_t limit = self.max_control_line
        cdef size_t cap
        cdef char *grown
        if self.kind != CLIENT:
            limit *= 16
        if <int64_t> (self.arg_len + n) - self.drop > limit:
            return self.violation(OVER_MAX_CONTROL_LINE, self.arg_len + n, p, n)
        if self.arg_len + n > self.arg_cap:
            cap = (self.arg_len + n) * 2
            grown = <char *> realloc(self.arg_buf, cap)
            if grown == NULL:
                return self.violation(PARSER_OUT_OF_MEMORY, 0, NULL, 0)
            self.arg_buf = grown
            self.arg_cap = cap
        memcpy(self.arg_buf + self.arg_len, p, n)
        self.arg_len += n
        return PARSE_OK

    cdef void drop_arg(self) noexcept nogil:
        if self.arg_cap:
            free(self.arg_buf)
            self.arg_buf = NULL
            self.arg_len = self.arg_cap = 0

    # -- the end of a line ---------------------------------------------------------------------------------

    cdef int end_arg(self, uint8_t state, char *arg, size_t n, bint in_arg_buf) noexcept nogil:
        cdef int64_t limit = self.max_control_line
        cdef int rc
        if self.kind != CLIENT:
            limit *= 16
        if <int64_t> n > limit:
            return self.violation(OVER_MAX_CONTROL_LINE, n, arg, n)
        if state == PUB_ARG or state == HPUB_ARG:
            if self.trace:
                self.trace_in_op("HPUB" if state == HPUB_ARG else "PUB", arg, n)
            rc = self.parse_pub(arg, n, state == HPUB_ARG)
            self.state = MSG_PAYLOAD
            return rc
        if state == MSG_ARG or state == HMSG_ARG:
            if self.kind != ROUTER and self.kind != GATEWAY and self.kind != LEAF:
                # nats-server takes an HMSG of a client for an empty message to nobody
                self.empty_args(arg, n)
                self.state = MSG_PAYLOAD
                return PARSE_OK
            if self.trace:
                if state == HMSG_ARG:
                    self.trace_in_op("HMSG", arg, n)
                else:
                    self.trace_in_op("RMSG" if (self.op | 0x20) == c'r' else "LMSG", arg, n)
            rc = self.parse_remote_msg(arg, n, state == HMSG_ARG)
            self.state = MSG_PAYLOAD
            return rc
        self.state = OP_START
        if state == SUB_ARG:
            if self.kind == CLIENT:
                if self.trace:
                    self.trace_in_op("SUB", arg, n)
                return self.process_sub(arg, n)
            if self.trace:
                self.trace_in_op("LS+" if (self.op | 0x20) == c'l' else "RS+", arg, n)
            return self.process_remote_sub(arg, n)
        if state == UNSUB_ARG:
            if self.kind == CLIENT:
                if self.trace:
                    self.trace_in_op("UNSUB", arg, n)
                return self.process_unsub(arg, n)
            if self.trace:
                self.trace_in_op("LS-" if (self.op | 0x20) == c'l' else "RS-", arg, n)
            return self.process_remote_unsub(arg, n)
        if state == CONNECT_ARG:
            return self.process_connect(arg, n)
        if state == INFO_ARG:
            return self.process_info(arg, n)
        if state == MINUS_ERR_ARG:
            return self.process_err(arg, n)
        if self.trace:
            self.trace_in_op("A+" if state == ASUB_ARG else "A-", arg, n)
        return self.process_account_sub(arg, n, state == ASUB_ARG)

    cdef void empty_args(self, char *arg, size_t n) noexcept nogil:
        """A message of no bytes without a subject; what all messages of the connection have in common stays."""
        cdef PubArg *pa = &self.pa
        pa.arg.p = arg
        pa.arg.n = n
        pa.m.subject.p = arg
        pa.m.subject.n = 0
        pa.m.reply.p = NULL
        pa.m.reply.n = 0
        pa.m.hdr_text.p = pa.m.n_text.p = NULL
        pa.m.hdr_text.n = pa.m.n_text.n = 0
        pa.m.line = NULL
        pa.size = pa.hdr = 0

    cdef int parse_pub(self, char *arg, size_t n, bint header) noexcept nogil:
        cdef Slice[MAX_CLIENT_ARGS] args
        cdef uint32_t count = 0, least
        cdef size_t i
        cdef bint inside = False
        cdef PubArg *pa = &self.pa
        if header and not load8(&self.headers):
            return self.violation(HEADERS_NOT_SUPPORTED, 0, NULL, 0)
        for i in range(n):
            if arg[i] == c' ' or arg[i] == c'\t':
                if inside:
                    args[count - 1].n = arg + i - args[count - 1].p
                    inside = False
            elif not inside:
                if count == MAX_CLIENT_ARGS:
                    break
                args[count].p = arg + i
                inside = True
                count += 1
        if inside:
            args[count - 1].n = arg + n - args[count - 1].p
        least = 3 if header else 2
        if count != least and count != least + 1:
            return self.violation(BAD_HPUB_ARGS if header else BAD_PUB_ARGS, 0, arg, n)
        pa.arg.p = arg
        pa.arg.n = n
        pa.m.subject = args[0]
        pa.m.reply.p = NULL
        pa.m.reply.n = 0
        if count == least + 1:
            pa.m.reply = args[1]
        pa.m.n_text = args[count - 1]
        pa.size = parse_size(pa.m.n_text.p, pa.m.n_text.n)
        pa.hdr = -1
        pa.m.hdr_text.p = NULL
        pa.m.line = NULL
        if header:
            pa.m.hdr_text = args[count - 2]
            pa.hdr = parse_size(pa.m.hdr_text.p, pa.m.hdr_text.n)
            if pa.hdr < 0:
                return self.violation(BAD_HPUB_HEADER_SIZE, 0, arg, n)
            if pa.size < 0:
                return self.violation(BAD_HPUB_SIZE, 0, arg, n)
            if pa.hdr > pa.size:
                return self.violation(BAD_HPUB_HEADER_OVER_SIZE, 0, arg, n)
        elif pa.size < 0:
            return self.violation(BAD_PUB_SIZE, 0, arg, n)
        if self.max_payload >= 0 and pa.size > self.max_payload:
            return self.violation(OVER_MAX_PAYLOAD, pa.size, NULL, 0)
        if self.pedantic and not is_valid_literal_subject(pa.m.subject.p, pa.m.subject.n):
            return self.process_invalid_publish_subject()
        return PARSE_OK

    cdef bint split_args(self, char *arg, size_t n) noexcept nogil:
        cdef size_t i
        cdef bint inside = False
        cdef uint32_t cap
        cdef Slice *grown
        self.argc = 0
        for i in range(n):
            if arg[i] == c' ' or arg[i] == c'\t' or arg[i] == c'\r' or arg[i] == c'\n':
                if inside:
                    self.argv[self.argc - 1].n = arg + i - self.argv[self.argc - 1].p
                    inside = False
            elif not inside:
                if self.argc == self.argv_cap:
                    cap = self.argv_cap * 2 if self.argv_cap else 8
                    grown = <Slice *> realloc(self.argv, cap * sizeof(Slice))
                    if grown == NULL:
                        return False
                    self.argv = grown
                    self.argv_cap = cap
                self.argv[self.argc].p = arg + i
                self.argc += 1
                inside = True
        if inside:
            self.argv[self.argc - 1].n = arg + n - self.argv[self.argc - 1].p
        return True

    cdef int parse_remote_msg(self, char *arg, size_t n, bint header) noexcept nogil:
        # [origin] [account] subject [reply | + reply queues... | '|' queues...] [header size] size
        cdef PubArg *pa = &self.pa
        cdef uint32_t at = 0, sizes
        cdef Slice none
        none.p = NULL
        none.n = 0
        if not self.split_args(arg, n):
            return self.violation(PARSER_OUT_OF_MEMORY, 0, NULL, 0)
        pa.arg.p = arg
        pa.arg.n = n
        pa.origin = pa.account = pa.m.reply = pa.m.hdr_text = none
        pa.queues = NULL
        pa.nqueues = 0
        pa.hdr = -1
        pa.m.line = NULL
        if not header and self.kind == ROUTER and (self.op | 0x20) == c'l':
            header = True   # a message on behalf of a leaf node always has a header size
            at += 1
        if self.kind == GATEWAY or (self.kind == ROUTER and self.has_account):
            at += 1
        sizes = 2 if header else 1
        if self.argc < at + 1 + sizes:
            return self.violation(BAD_REMOTE_MSG_ARGS, 0, arg, n)
        if at:
            pa.account = self.argv[at - 1]
            if at == 2 or not self.has_account:
                pa.origin = self.argv[0]
                if not self.has_account:
                    pa.account = none
        pa.m.subject = self.argv[at]
        pa.m.n_text = self.argv[self.argc - 1]
        pa.size = parse_size(pa.m.n_text.p, pa.m.n_text.n)
        if header:
            pa.m.hdr_text = self.argv[self.argc - 2]
            pa.hdr = parse_size(pa.m.hdr_text.p, pa.m.hdr_text.n)
        at += 1
        if self.argc == at + 1 + sizes:
            pa.m.reply = self.argv[at]
        elif self.argc > at + 1 + sizes:
            if self.argv[at].n != 1 or (self.argv[at].p[0] != c'+' and self.argv[at].p[0] != c'|'):
                return self.violation(BAD_REMOTE_REPLY_INDICATOR, 0, arg, n)
            if self.argv[at].p[0] == c'+':
                at += 1
                pa.m.reply = self.argv[at]
            pa.queues = self.argv + at + 1
            pa.nqueues = self.argc - sizes - at - 1
        if pa.size < 0 or (header and (pa.hdr < 0 or pa.hdr > pa.size)):
            return self.violation(BAD_REMOTE_SIZE, 0, arg, n)
        return PARSE_OK

    # -- payloads ------------------------------------------------------------------------------------------

    cdef int fast_pub(self, char *buf, size_t n, size_t *at) noexcept nogil:
        """A whole well-formed PUB or HPUB at buf[at]: handle it and return 1. Anything else, 0: the state machine
        decides, and words the errors."""
        cdef char *line = buf + at[0]
        cdef char *end = buf + n
        cdef char *p
        cdef Slice[4] args
        cdef uint32_t count = 0, most = 3
        cdef bint header = (line[0] | 0x20) == c'h'
        cdef uint64_t mask
        cdef char *at_sep
        cdef size_t arg_len
        cdef int32_t size, hdr = -1
        cdef PubArg *pa = &self.pa
        cdef int rc
        if end - line < LOOK_AHEAD or self.auth_set or self.trace or self.kind != CLIENT:
            return 0
        p = line
        if header:
            if not load8(&self.headers):
                return 0
            p += 1
            most = 4
        if (p[0] | 0x20) != c'p' or (p[1] | 0x20) != c'u' or (p[2] | 0x20) != c'b' or p[3] != c' ':
            return 0
        p += 4
        if end - p <= LOOK_AHEAD:
            return 0
        # Words end at the separators among the next 64 bytes; a longer line is the state machine's. Behind the last of
        # them is one byte more: the LF of a CR LF.
        mask = separators(p)
        args[0].p = p
        while True:
            if mask == 0:
                return 0
            at_sep = p + ctz64(mask)
            mask &= mask - 1
            args[count].n = at_sep - args[count].p
            if args[count].n == 0:
                return 0
            count += 1
            if at_sep[0] != c' ':
                break
            if count == most:
                return 0
            args[count].p = at_sep + 1
        p = at_sep
        if p[0] != c'\r' or p[1] != c'\n':
            return 0
        if count + 1 < most:
            return 0
        arg_len = p - line - (5 if header else 4)
        if arg_len > <size_t> self.max_control_line:
            return 0
        size = parse_size(args[count - 1].p, args[count - 1].n)
        if header:
            hdr = parse_size(args[count - 2].p, args[count - 2].n)
            if hdr < 0 or hdr > size:
                return 0
        p += 2
        if size < 0 or (self.max_payload >= 0 and size > self.max_payload):
            return 0
        if end - p < size + 2 or p[size] != c'\r' or p[size + 1] != c'\n':
            return 0
        pa.m.subject = args[0]
        pa.m.reply.p = NULL
        pa.m.reply.n = 0
        if count == most:
            pa.m.reply = args[1]
        pa.m.n_text = args[count - 1]
        pa.m.hdr_text.p = NULL
        if header:
            pa.m.hdr_text = args[count - 2]
        pa.size = size
        pa.hdr = hdr
        # A message with a header of no bytes goes out without one: its line cannot be used again.
        pa.m.line = line if hdr != 0 else NULL
        at[0] = p + size + 2 - buf
        if self.pedantic and not is_valid_literal_subject(pa.m.subject.p, pa.m.subject.n):
            rc = self.process_invalid_publish_subject()
            if rc != PARSE_OK:
                return rc
        hand_on(self, p)
        if unlikely(load8(&self.closing)):
            return PARSE_CLOSED
        return 1

    cdef int payload(self, char *buf, size_t n, size_t *at) noexcept nogil:
        """Payload from buf[at] on (its start, when none of it has been kept)."""
        cdef size_t need = <size_t> self.pa.size + 2
        cdef size_t take
        cdef int rc
        if self.msg_buf == NULL:
            take = n - at[0]
            if take >= need:
                rc = self.end_msg(buf + at[0])
                at[0] += need
                return rc
            if take == need - 1 and buf[at[0] + take - 1] != c'\r':
                self.state = MSG_END_R
                return self.bad_operation(buf, n, at[0] + take - 1)
            # A payload that goes on in the next read: keep it, and the arguments with it.
            if self.arg_len == 0:
                rc = self.save_arg(self.pa.arg.p, self.pa.arg.n)
                if rc != PARSE_OK:
                    return rc
                self.rebase(self.pa.arg.p, self.arg_buf)
            self.msg_buf = <char *> malloc(need)
            if self.msg_buf == NULL:
                return self.violation(PARSER_OUT_OF_MEMORY, 0, NULL, 0)
            memcpy(self.msg_buf, buf + at[0], take)
            self.msg_len = take
            at[0] = n
            return PARSE_OK
        take = need - self.msg_len
        if take > n - at[0]:
            take = n - at[0]
        memcpy(self.msg_buf + self.msg_len, buf + at[0], take)
        at[0] += take
        return self.payload_filled(take)

    cdef int payload_filled(self, size_t k) noexcept nogil:
        cdef size_t size = <size_t> self.pa.size
        self.msg_len += k
        if self.msg_len == size + 2:
            return self.end_msg(self.msg_buf)
        if self.msg_len == size + 1 and self.msg_buf[size] != c'\r':
            self.state = MSG_END_R
            return self.bad_operation(self.msg_buf, self.msg_len, size)
        return PARSE_OK

    cdef int end_msg(self, char *msg) noexcept nogil:
        cdef size_t size = <size_t> self.pa.size
        if msg[size] != c'\r' or msg[size + 1] != c'\n':
            self.state = MSG_END_R if msg[size] != c'\r' else MSG_END_N
            return self.bad_operation(msg, size + 2, size if msg[size] != c'\r' else size + 1)
        hand_on(self, msg)
        free(self.msg_buf)
        self.msg_buf = NULL
        self.msg_len = 0
        self.drop_arg()
        self.pa.queues = NULL
        self.pa.nqueues = 0
        self.state = OP_START
        return PARSE_CLOSED if load8(&self.closing) else PARSE_OK

    cdef void rebase(self, char *old, char *new) noexcept nogil:
        cdef PubArg *pa = &self.pa
        cdef uint32_t i
        move(&pa.arg, old, new)
        move(&pa.origin, old, new)
        move(&pa.account, old, new)
        move(&pa.m.subject, old, new)
        move(&pa.m.reply, old, new)
        move(&pa.m.n_text, old, new)
        move(&pa.m.hdr_text, old, new)
        for i in range(pa.nqueues):
            move(&pa.queues[i], old, new)

    # -- handlers: what a connection overrides --------------------------------------------------------------

    cdef int process_inbound_msg(self) noexcept nogil:
        return PARSE_OK

    cdef int process_sub(self, char *arg, size_t n) noexcept nogil:
        return PARSE_OK

    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil:
        return PARSE_OK

    cdef int process_remote_sub(self, char *arg, size_t n) noexcept nogil:
        return self.violation(UNSUPPORTED_OPERATION, 0, arg, n)

    cdef int process_remote_unsub(self, char *arg, size_t n) noexcept nogil:
        return self.violation(UNSUPPORTED_OPERATION, 0, arg, n)

    cdef int process_account_sub(self, char *arg, size_t n, bint add) noexcept nogil:
        return self.violation(UNSUPPORTED_OPERATION, 0, arg, n)

    cdef int process_ping(self) noexcept nogil:
        return PARSE_OK

    cdef int process_pong(self) noexcept nogil:
        return PARSE_OK

    cdef int process_connect(self, char *arg, size_t n) noexcept nogil:
        return PARSE_OK

    cdef int process_info(self, char *arg, size_t n) noexcept nogil:
        return PARSE_OK

    cdef int process_err(self, char *arg, size_t n) noexcept nogil:
        return PARSE_CLOSED

    cdef int process_invalid_publish_subject(self) noexcept nogil:
        return PARSE_OK

    cdef int auth_violation(self) noexcept nogil:
        return PARSE_CLOSED

    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil:
        return PARSE_CLOSED

    cdef void trace_in_op(self, const char *op, const char *arg, size_t n) noexcept nogil:
        pass
