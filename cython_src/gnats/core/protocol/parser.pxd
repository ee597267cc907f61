"""The protocol state machine (ports parser.go): bytes in, calls out, no I/O.

A session has one and gives it handlers. Arguments are slices of the buffer being parsed, or of `arg_buf` when a line or
its payload was split over reads; they are good until the message's handler returns. Only the connection's poller
touches a parser.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from gnats.core.messages.message cimport Message, RemoteArgs
from gnats.core.net.shared cimport Shared
from gnats.core.runtime.slice cimport Slice

cdef enum:
    PARSE_OK = 0
    PARSE_PUNT = 1       # a verb went to the control plane: stop after `consumed` bytes
    PARSE_TURN_OVER = 2  # other connections have their turn: stop after `consumed` bytes
    PARSE_CLOSED = -1    # the connection is closed or closing: stop

# Codes for violation(); gnats.connection.log_lines has their texts.
cpdef enum Violation:
    BAD_OPERATION = 1        # b: state << 32 | offset; data: what follows
    BAD_PUB_ARGS = 2
    BAD_PUB_SIZE = 3
    BAD_HPUB_ARGS = 4
    BAD_HPUB_HEADER_SIZE = 5
    BAD_HPUB_SIZE = 6
    BAD_HPUB_HEADER_OVER_SIZE = 7
    HEADERS_NOT_SUPPORTED = 8
    OVER_MAX_CONTROL_LINE = 9    # b: the length
    OVER_MAX_PAYLOAD = 10        # b: the size
    BAD_SUB_ARGS = 11
    BAD_UNSUB_ARGS = 12
    # b: 0 for RMSG, 1 for HMSG, 2 for LMSG
    BAD_REMOTE_MSG_ARGS = 13
    BAD_REMOTE_REPLY_INDICATOR = 14   # data: what stands there instead
    BAD_REMOTE_SIZE = 15
    UNSUPPORTED_OPERATION = 16   # a verb of a connection kind that gnats does not have yet
    PARSER_OUT_OF_MEMORY = 17
    BAD_REMOTE_SUB_ARGS = 18     # b: 'R' or 'L', the verb
    BAD_REMOTE_UNSUB_ARGS = 19
    BAD_REMOTE_HEADER_SIZE = 20       # these two as BAD_REMOTE_SIZE
    BAD_REMOTE_HEADER_OVER_SIZE = 21


# The arguments of the current message.
cdef struct PubArg:
    Message m          # the message for its subscribers; the parser sets subject, reply, data, sizes and line
    Slice arg          # the whole argument line
    int32_t size       # payload, headers included
    int32_t hdr        # header bytes, -1 without headers


# Verbs that are allowed before the peer is known.
cdef enum:
    ONLY_CONNECT = 1
    CONNECT_OR_INFO


# The functions that a parser calls. They return PARSE_OK to go on, PARSE_PUNT or PARSE_CLOSED to stop.
cdef struct ParserHandlers:
    # A message is complete in pa.m, with CR LF behind its data.
    int (*process_inbound_msg)(void *owner) noexcept nogil
    # Called for SUB, RS+ and LS+, and for UNSUB, RS- and LS-, by the connection's kind. Here and in the next one NULL
    # makes the verb a violation.
    int (*process_sub)(void *owner, char *arg, size_t n) noexcept nogil
    int (*process_unsub)(void *owner, char *arg, size_t n) noexcept nogil
    int (*process_account_sub)(void *owner, char *arg, size_t n, bint add) noexcept nogil
    int (*process_ping)(void *owner) noexcept nogil
    int (*process_pong)(void *owner) noexcept nogil
    int (*process_connect)(void *owner, char *arg, size_t n) noexcept nogil
    int (*process_info)(void *owner, char *arg, size_t n) noexcept nogil
    int (*process_err)(void *owner, char *arg, size_t n) noexcept nogil
    int (*process_invalid_publish_subject)(void *owner) noexcept nogil
    int (*auth_violation)(void *owner) noexcept nogil
    int (*violation)(void *owner, int code, int64_t b, const char *data, size_t n) noexcept nogil
    # Asked between two verbs, when parsing has come to `until`: stop here?
    bint (*turn_over)(void *owner) noexcept nogil
    # With `trace` set: a line has come.
    void (*trace_in_op)(void *owner, const char *op, const char *arg, size_t n) noexcept nogil


cdef struct Parser:
    # kind of the connection; state of the machine; first letter of the verb; 1 to drop a CR from the end of the line
    uint8_t kind, state, op, drop
    uint8_t auth_set         # ONLY_CONNECT, CONNECT_OR_INFO; 0: any verb is allowed
    uint8_t headers          # negotiated with the peer
    uint8_t trace
    uint8_t pedantic
    uint8_t has_account      # routed messages name their account (all but those of a pinned route)
    int32_t max_payload      # -1 for no limit
    int32_t max_control_line
    const ParserHandlers *on
    void *owner
    size_t consumed          # after PARSE_PUNT and PARSE_TURN_OVER
    size_t until             # ask turn_over() behind so many bytes; handlers set 0, to be asked soon
    PubArg pa
    Slice rest               # what was read behind the current line
    # a line, and a payload, that are split over reads
    size_t arg_start         # of the current argument, in the buffer being parsed
    char *arg_buf
    size_t arg_len, arg_cap
    Shared *block            # pa.size + 2 bytes when not NULL, of which msg_len are there
    size_t msg_len
    RemoteArgs *remote       # NULL until a routed message has come


cdef void parser_init(Parser *parser, uint8_t kind, const ParserHandlers *on, void *owner) noexcept nogil
cdef void parser_free(Parser *parser) noexcept nogil
# Parse n bytes. PARSE_OK: all are parsed; PARSE_PUNT: go on behind `consumed` of them when the control plane has
# answered; PARSE_TURN_OVER: go on behind them, of which there are more than 0, when other connections have had their
# turn; PARSE_CLOSED: parse nothing more.
cdef int parse(Parser *parser, char *buf, size_t n) noexcept nogil
# Return where the rest of a payload that is split over reads goes, and its length in n[0]; 0 when there is none.
cdef inline char *parser_wants(Parser *parser, size_t *n) noexcept nogil:
    n[0] = <size_t> parser.pa.size + 2 - parser.msg_len if parser.block != NULL else 0
    return parser.block.data + parser.msg_len if parser.block != NULL else NULL
# k bytes were read straight to where parser_wants() said.
cdef int payload_filled(Parser *parser, size_t k) noexcept nogil
