"""The protocol state machine; see parser.pxd.

States have nats-server's numbers: they appear in a log line that people search for. One table drives the verbs; lines,
payloads and the fast path for publishing are code.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcpy, memset

from gnats.core.messages.message cimport Message, RemoteArgs
from gnats.core.net.shared cimport shared_drop, shared_new
from gnats.core.protocol.remote_args cimport (
    REMOTE_BAD_ARGS,
    REMOTE_BAD_HEADER_SIZE,
    REMOTE_BAD_INDICATOR,
    REMOTE_BAD_SIZE,
    REMOTE_HEADER_OVER_SIZE,
    REMOTE_OK,
    RemoteForm,
    read_remote_msg,
)
from gnats.core.protocol.words cimport parse_size
from gnats.core.runtime.kinds cimport CLIENT, GATEWAY, LEAF, ROUTER
from gnats.core.subjects.subject cimport is_valid_literal_subject
from gnats.includes.atomics cimport unlikely

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
    STRETCH = 8192        # bytes to parse before turn_over() is asked
    MAX_CLIENT_ARGS = 5   # one more than any verb of a client takes

# How a state handles its next byte.
cdef enum:
    BY_TABLE = 0          # NEXT says which state follows
    SKIP_BLANKS = 1       # skip blanks; the first other byte begins an argument
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


cdef inline void move(Slice *s, char *old, char *new) noexcept nogil:
    if s.p != NULL:
        s.p = new + (s.p - old)


cdef inline int process_msg(Parser *parser, char *data) noexcept nogil:
    """Have the current message processed; its payload is complete."""
    cdef Message *m = &parser.pa.m
    m.data = data
    m.n = <size_t> parser.pa.size
    m.hdr = <size_t> parser.pa.hdr if parser.pa.hdr > 0 else 0
    m.ended = 1
    return parser.on.process_inbound_msg(parser.owner)


cdef void parser_init(Parser *parser, uint8_t kind, const ParserHandlers *on, void *owner) noexcept nogil:
    memset(parser, 0, sizeof(Parser))
    parser.kind = kind
    parser.on = on
    parser.owner = owner
    parser.state = OP_START
    parser.pa.hdr = -1
    parser.has_account = 1


cdef void parser_free(Parser *parser) noexcept nogil:
    free(parser.arg_buf)
    shared_drop(parser.block)
    if parser.remote != NULL:
        free(parser.remote.argv)
        free(parser.remote)
    parser.arg_buf = NULL
    parser.block = NULL
    parser.remote = NULL
    parser.arg_len = parser.arg_cap = parser.msg_len = 0


cdef bint is_turn_over(Parser *parser, size_t at) noexcept nogil:
    if parser.on.turn_over(parser.owner):
        parser.consumed = at
        return True
    parser.until = at + STRETCH
    return False


cdef int parse(Parser *parser, char *buf, size_t n) noexcept nogil:
    cdef size_t i = 0
    cdef uint8_t b, following, how
    cdef char *nl
    cdef int rc
    parser.until = STRETCH
    while i < n:
        how = HOW[parser.state]
        if how == BY_TABLE:
            b = <uint8_t> buf[i]
            if parser.state == OP_START:
                if (b | 0x20) == c'p' or (b | 0x20) == c'h':
                    rc = fast_pub(parser, buf, n, &i)
                    if rc < 0:
                        return rc
                    if rc > 0:
                        if unlikely(i >= parser.until) and i < n and is_turn_over(parser, i):
                            return PARSE_TURN_OVER
                        continue
                if i and i >= parser.until and is_turn_over(parser, i):
                    return PARSE_TURN_OVER
                parser.op = b
                if parser.auth_set and (b | 0x20) != c'c' and (
                    parser.auth_set != CONNECT_OR_INFO or (b | 0x20) != c'i'
                ):
                    return parser.on.auth_violation(parser.owner)
                if parser.kind == CLIENT:
                    if (b | 0x20) == c'r' or (b | 0x20) == c'l' or (b | 0x20) == c'a':
                        return bad_operation(parser, buf, n, i)
                elif (b | 0x20) == c'l' and parser.kind != LEAF and parser.kind != ROUTER:
                    return bad_operation(parser, buf, n, i)
            following = NEXT[parser.state][b]
            if following == NO_STATE:
                return bad_operation(parser, buf, n, i)
            parser.state = following
            i += 1
        elif how == SKIP_BLANKS:
            if buf[i] != c' ' and buf[i] != c'\t':
                parser.state = ARG_OF[parser.state]
                parser.arg_start = i
                parser.arg_len = 0
                # The first byte belongs to the argument, even a line feed.
            i += 1
        elif how == ARGUMENT:
            nl = <char *> memchr(buf + i, c'\n', n - i)
            if nl == NULL:
                break
            if memchr(buf + i, c'\r', nl - (buf + i)) != NULL:
                parser.drop = 1
            i = nl - buf
            parser.rest.p = nl + 1
            parser.rest.n = n - i - 1
            if parser.arg_len:
                rc = save_arg(parser, buf, i)
                if rc != PARSE_OK:
                    return rc
                rc = end_arg(parser, parser.state, parser.arg_buf, parser.arg_len - parser.drop, True)
            else:
                rc = end_arg(parser, parser.state, buf + parser.arg_start, i - parser.arg_start - parser.drop, False)
            i += 1
            parser.drop = 0
            parser.rest.n = 0
            if parser.state != MSG_PAYLOAD:
                drop_arg(parser)
            if rc != PARSE_OK:
                parser.consumed = i
                return rc
            if parser.state == MSG_PAYLOAD and i == n:
                rc = payload(parser, buf, n, &i)
                if rc != PARSE_OK:
                    return rc
        elif how == REST_OF_LINE:
            if buf[i] == c'\n':
                rc = PARSE_OK
                if parser.state == OP_PING:
                    rc = parser.on.process_ping(parser.owner)
                elif parser.state == OP_PONG:
                    rc = parser.on.process_pong(parser.owner)
                parser.state = OP_START
                if rc != PARSE_OK:
                    parser.consumed = i + 1
                    return rc
            i += 1
        else:
            rc = payload(parser, buf, n, &i)
            if rc != PARSE_OK:
                return rc
    if HOW[parser.state] == ARGUMENT:
        # The line goes on in the next read: keep this part of it. Its first byte may be anything, so skip that.
        i = parser.arg_start if parser.arg_len == 0 else 0
        if memchr(buf + i + (parser.arg_len == 0), c'\r', n - i - (parser.arg_len == 0)) != NULL:
            parser.drop = 1
        return save_arg(parser, buf + i, n - i)
    return PARSE_OK


cdef int bad_operation(Parser *parser, const char *buf, size_t n, size_t at) noexcept nogil:
    return parser.on.violation(
        parser.owner, BAD_OPERATION, (<int64_t> parser.state << 32) | <int64_t> at, buf + at, n - at)


cdef int unsupported(Parser *parser, const char *arg, size_t n) noexcept nogil:
    return parser.on.violation(parser.owner, UNSUPPORTED_OPERATION, 0, arg, n)


cdef inline int64_t line_limit(const Parser *parser) noexcept nogil:
    """Return the most bytes of a line. What a leaf node may say must fit into a line of a route, with the names of its
    account and cluster; and a route's line may name many queue groups: else a client could have it closed."""
    cdef int64_t limit = parser.max_control_line
    if parser.kind == LEAF:
        return limit * 15
    if parser.kind == ROUTER or parser.kind == GATEWAY:
        return limit * 256
    return limit if parser.kind == CLIENT else limit * 16


cdef int save_arg(Parser *parser, const char *p, size_t n) noexcept nogil:
    """Keep a part of a line. A line over max_control_line is a violation; a CR at its end does not count."""
    cdef int64_t limit = line_limit(parser)
    cdef size_t cap
    cdef char *grown
    if <int64_t> (parser.arg_len + n) - parser.drop > limit:
        return parser.on.violation(parser.owner, OVER_MAX_CONTROL_LINE, parser.arg_len + n, p, n)
    if parser.arg_len + n > parser.arg_cap:
        cap = (parser.arg_len + n) * 2
        grown = <char *> realloc(parser.arg_buf, cap)
        if grown == NULL:
            return parser.on.violation(parser.owner, PARSER_OUT_OF_MEMORY, 0, NULL, 0)
        parser.arg_buf = grown
        parser.arg_cap = cap
    memcpy(parser.arg_buf + parser.arg_len, p, n)
    parser.arg_len += n
    return PARSE_OK


cdef void drop_arg(Parser *parser) noexcept nogil:
    if parser.arg_cap:
        free(parser.arg_buf)
        parser.arg_buf = NULL
        parser.arg_len = parser.arg_cap = 0

# -- the end of a line ---------------------------------------------------------------------------------


cdef inline const char *name_by_kind(const Parser *parser, const char *client, const char *route,
                                     const char *leaf) noexcept nogil:
    """The verb of a line that starts differently by the connection's kind, for the trace."""
    if parser.kind == CLIENT:
        return client
    return leaf if (parser.op | 0x20) == c'l' else route


cdef int end_arg(Parser *parser, uint8_t state, char *arg, size_t n, bint in_arg_buf) noexcept nogil:
    cdef int64_t limit = line_limit(parser)
    cdef int rc
    if <int64_t> n > limit:
        return parser.on.violation(parser.owner, OVER_MAX_CONTROL_LINE, n, arg, n)
    if state == PUB_ARG or state == HPUB_ARG:
        if parser.trace:
            parser.on.trace_in_op(parser.owner, "HPUB" if state == HPUB_ARG else "PUB", arg, n)
        rc = parse_pub(parser, arg, n, state == HPUB_ARG)
        parser.state = MSG_PAYLOAD
        return rc
    if state == MSG_ARG or state == HMSG_ARG:
        if parser.kind != ROUTER and parser.kind != GATEWAY and parser.kind != LEAF:
            # nats-server handles an HMSG from a client as an empty message without a subject.
            empty_args(parser, arg, n)
            parser.state = MSG_PAYLOAD
            return PARSE_OK
        if parser.trace:
            if state == HMSG_ARG:
                parser.on.trace_in_op(parser.owner, "HMSG", arg, n)
            else:
                parser.on.trace_in_op(parser.owner, "RMSG" if (parser.op | 0x20) == c'r' else "LMSG", arg, n)
        rc = parse_remote_msg(parser, arg, n, state == HMSG_ARG)
        parser.state = MSG_PAYLOAD
        return rc
    parser.state = OP_START
    if state == SUB_ARG:
        if parser.trace:
            parser.on.trace_in_op(parser.owner, name_by_kind(parser, "SUB", "RS+", "LS+"), arg, n)
        if parser.on.process_sub == NULL:
            return unsupported(parser, arg, n)
        return parser.on.process_sub(parser.owner, arg, n)
    if state == UNSUB_ARG:
        if parser.trace:
            parser.on.trace_in_op(parser.owner, name_by_kind(parser, "UNSUB", "RS-", "LS-"), arg, n)
        if parser.on.process_unsub == NULL:
            return unsupported(parser, arg, n)
        return parser.on.process_unsub(parser.owner, arg, n)
    if state == CONNECT_ARG:
        return parser.on.process_connect(parser.owner, arg, n)
    if state == INFO_ARG:
        return parser.on.process_info(parser.owner, arg, n)
    if state == MINUS_ERR_ARG:
        return parser.on.process_err(parser.owner, arg, n)
    if parser.trace:
        parser.on.trace_in_op(parser.owner, "A+" if state == ASUB_ARG else "A-", arg, n)
    if parser.on.process_account_sub == NULL:
        return unsupported(parser, arg, n)
    return parser.on.process_account_sub(parser.owner, arg, n, state == ASUB_ARG)


cdef void empty_args(Parser *parser, char *arg, size_t n) noexcept nogil:
    """Set up a message without bytes and subject; fields that all messages of the connection share stay."""
    cdef PubArg *pa = &parser.pa
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


cdef int parse_pub(Parser *parser, char *arg, size_t n, bint header) noexcept nogil:
    cdef Slice[MAX_CLIENT_ARGS] args
    cdef uint32_t count = 0, least
    cdef size_t i
    cdef bint inside = False
    cdef PubArg *pa = &parser.pa
    if header and not parser.headers:
        return parser.on.violation(parser.owner, HEADERS_NOT_SUPPORTED, 0, NULL, 0)
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
        return parser.on.violation(parser.owner, BAD_HPUB_ARGS if header else BAD_PUB_ARGS, 0, arg, n)
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
            return parser.on.violation(parser.owner, BAD_HPUB_HEADER_SIZE, 0, arg, n)
        if pa.size < 0:
            return parser.on.violation(parser.owner, BAD_HPUB_SIZE, 0, arg, n)
        if pa.hdr > pa.size:
            return parser.on.violation(parser.owner, BAD_HPUB_HEADER_OVER_SIZE, 0, arg, n)
    elif pa.size < 0:
        return parser.on.violation(parser.owner, BAD_PUB_SIZE, 0, arg, n)
    if parser.max_payload >= 0 and pa.size > parser.max_payload:
        return parser.on.violation(parser.owner, OVER_MAX_PAYLOAD, pa.size, NULL, 0)
    if parser.pedantic and not is_valid_literal_subject(pa.m.subject.p, pa.m.subject.n):
        return parser.on.process_invalid_publish_subject(parser.owner)
    return PARSE_OK


cdef int parse_remote_msg(Parser *parser, char *arg, size_t n, bint header) noexcept nogil:
    cdef PubArg *pa = &parser.pa
    cdef RemoteForm form
    cdef int rc
    if parser.remote == NULL:
        parser.remote = <RemoteArgs *> calloc(1, sizeof(RemoteArgs))
        if parser.remote == NULL:
            return parser.on.violation(parser.owner, PARSER_OUT_OF_MEMORY, 0, NULL, 0)
    form.origin = not header and parser.kind == ROUTER and (parser.op | 0x20) == c'l'
    form.account = parser.kind == GATEWAY or (parser.kind == ROUTER and parser.has_account)
    form.header = header or form.origin   # a message on behalf of a leaf node always has a header size
    pa.arg.p = arg
    pa.arg.n = n
    pa.m.line = NULL
    pa.m.remote = parser.remote
    rc = read_remote_msg(parser.remote, &form, arg, n, &pa.m, &pa.size, &pa.hdr)
    if rc == REMOTE_OK:
        if parser.max_payload >= 0 and pa.size > parser.max_payload:   # of a leaf node
            return parser.on.violation(parser.owner, OVER_MAX_PAYLOAD, pa.size, NULL, 0)
        return PARSE_OK
    if rc == REMOTE_BAD_INDICATOR:
        arg = parser.remote.queues[0].p
        n = parser.remote.queues[0].n
    return parser.on.violation(parser.owner, remote_violation(rc), form.header + form.origin, arg, n)


cdef int remote_violation(int rc) noexcept nogil:
    if rc == REMOTE_BAD_ARGS:
        return BAD_REMOTE_MSG_ARGS
    if rc == REMOTE_BAD_INDICATOR:
        return BAD_REMOTE_REPLY_INDICATOR
    if rc == REMOTE_BAD_HEADER_SIZE:
        return BAD_REMOTE_HEADER_SIZE
    if rc == REMOTE_HEADER_OVER_SIZE:
        return BAD_REMOTE_HEADER_OVER_SIZE
    return BAD_REMOTE_SIZE if rc == REMOTE_BAD_SIZE else PARSER_OUT_OF_MEMORY


cdef int fast_pub(Parser *parser, char *buf, size_t n, size_t *at) noexcept nogil:
    """Handle a whole well-formed PUB or HPUB at buf[at] and return 1; return 0 for anything else.

    The state machine handles the rest, and words the errors.
    """
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
    cdef PubArg *pa = &parser.pa
    cdef int rc
    if end - line < LOOK_AHEAD or parser.auth_set or parser.trace or parser.kind != CLIENT:
        return 0
    p = line
    if header:
        if not parser.headers:
            return 0
        p += 1
        most = 4
    if (p[0] | 0x20) != c'p' or (p[1] | 0x20) != c'u' or (p[2] | 0x20) != c'b' or p[3] != c' ':
        return 0
    p += 4
    if end - p <= LOOK_AHEAD:
        return 0
    # Words end at the separators among the next 64 bytes; leave longer lines to the state machine. Require one byte
    # behind those 64: the LF, when the CR is the last of them.
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
    if arg_len > <size_t> parser.max_control_line:
        return 0
    size = parse_size(args[count - 1].p, args[count - 1].n)
    if header:
        hdr = parse_size(args[count - 2].p, args[count - 2].n)
        if hdr < 0 or hdr > size:
            return 0
    p += 2
    if size < 0 or (parser.max_payload >= 0 and size > parser.max_payload):
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
    # "HPUB ... 0 size": subscribers get it without a header, so its line cannot be reused.
    pa.m.line = line if hdr != 0 else NULL
    at[0] = p + size + 2 - buf
    if parser.pedantic and not is_valid_literal_subject(pa.m.subject.p, pa.m.subject.n):
        rc = parser.on.process_invalid_publish_subject(parser.owner)
        if rc != PARSE_OK:
            return rc
    rc = process_msg(parser, p)
    return 1 if rc == PARSE_OK else rc


cdef int payload(Parser *parser, char *buf, size_t n, size_t *at) noexcept nogil:
    """Handle payload from buf[at] on, which is its start when no part of it is kept."""
    cdef size_t need = <size_t> parser.pa.size + 2
    cdef size_t take
    cdef int rc
    if parser.block == NULL:
        take = n - at[0]
        if take >= need:
            rc = end_msg(parser, buf + at[0])
            at[0] += need
            return rc
        if take == need - 1 and buf[at[0] + take - 1] != c'\r':
            parser.state = MSG_END_R
            return bad_operation(parser, buf, n, at[0] + take - 1)
        # The payload goes on in the next read: keep this part, and the arguments.
        if parser.arg_len == 0:
            rc = save_arg(parser, parser.pa.arg.p, parser.pa.arg.n)
            if rc != PARSE_OK:
                return rc
            rebase(parser, parser.pa.arg.p, parser.arg_buf)
        parser.block = shared_new(need)   # subscribers' queues may refer to it
        if parser.block == NULL:
            return parser.on.violation(parser.owner, PARSER_OUT_OF_MEMORY, 0, NULL, 0)
        memcpy(parser.block.data, buf + at[0], take)
        parser.msg_len = take
        at[0] = n
        return PARSE_OK
    take = need - parser.msg_len
    if take > n - at[0]:
        take = n - at[0]
    memcpy(parser.block.data + parser.msg_len, buf + at[0], take)
    at[0] += take
    return payload_filled(parser, take)


cdef int payload_filled(Parser *parser, size_t k) noexcept nogil:
    cdef size_t size = <size_t> parser.pa.size
    parser.msg_len += k
    if parser.msg_len == size + 2:
        return end_msg(parser, parser.block.data)
    if parser.msg_len == size + 1 and parser.block.data[size] != c'\r':
        parser.state = MSG_END_R
        return bad_operation(parser, parser.block.data, parser.msg_len, size)
    return PARSE_OK


cdef int end_msg(Parser *parser, char *msg) noexcept nogil:
    cdef size_t size = <size_t> parser.pa.size
    cdef int rc
    if msg[size] != c'\r' or msg[size + 1] != c'\n':
        parser.state = MSG_END_R if msg[size] != c'\r' else MSG_END_N
        return bad_operation(parser, msg, size + 2, size if msg[size] != c'\r' else size + 1)
    parser.pa.m.block = parser.block
    rc = process_msg(parser, msg)
    shared_drop(parser.block)
    parser.block = parser.pa.m.block = NULL
    parser.msg_len = 0
    drop_arg(parser)
    parser.pa.m.remote = NULL   # on a route, too, a PUB comes from nowhere
    parser.state = OP_START
    return rc


cdef void rebase(Parser *parser, char *old, char *new) noexcept nogil:
    cdef PubArg *pa = &parser.pa
    cdef RemoteArgs *r = parser.remote
    cdef uint32_t i
    move(&pa.arg, old, new)
    move(&pa.m.subject, old, new)
    move(&pa.m.reply, old, new)
    move(&pa.m.n_text, old, new)
    move(&pa.m.hdr_text, old, new)
    if pa.m.remote != NULL:
        move(&r.origin, old, new)
        move(&r.account, old, new)
        for i in range(r.nqueues):
            move(&r.queues[i], old, new)
