"""The protocol state machine (ports parser.go): bytes in, calls out, no I/O.

A connection subclasses Parser and overrides the handlers. Arguments are slices of the buffer being parsed, or of
`arg_buf` when a line or its payload was split over reads; they are good until the handler of the message returns.
Only the owning poller touches a parser.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from gnats.core.message cimport Message
from gnats.core.slice cimport Slice

cdef enum:
    PARSE_OK = 0
    PARSE_PUNT = 1       # a verb went to the control plane: stop, `consumed` says where
    PARSE_CLOSED = -1    # the connection is closed or closing: stop

# What violation() is told. The texts are gnats.records'.
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
    BAD_REMOTE_MSG_ARGS = 13
    BAD_REMOTE_REPLY_INDICATOR = 14
    BAD_REMOTE_SIZE = 15
    UNSUPPORTED_OPERATION = 16   # a verb of a connection kind that gnats does not have yet
    PARSER_OUT_OF_MEMORY = 17


# The arguments of a message in hand.
cdef struct PubArg:
    Message m          # all that its subscribers get; the parser sets subject, reply, data, sizes and line
    Slice arg          # the whole argument line
    Slice origin       # LMSG of a route: the leaf node cluster it came from
    Slice account
    Slice *queues      # RMSG and LMSG: queue groups to deliver to
    uint32_t nqueues
    int32_t size       # payload, headers included
    int32_t hdr        # header bytes, -1 without headers


cdef class Parser:
    cdef uint8_t kind, state, op, drop
    cdef uint8_t auth_set        # only CONNECT is allowed yet
    cdef uint8_t headers         # negotiated with the peer; atomic
    cdef uint8_t trace
    cdef uint8_t pedantic
    cdef uint8_t has_account     # routed messages name their account (all but those of a pinned route)
    cdef uint8_t closing         # atomic: set by close_connection, stops the parser
    cdef int32_t max_payload     # -1 for no limit
    cdef int32_t max_control_line
    cdef size_t consumed         # after PARSE_PUNT
    cdef PubArg pa
    cdef Slice rest              # what was read behind the line in hand
    # a line or payload that was split over reads
    cdef size_t arg_start
    cdef char *arg_buf
    cdef size_t arg_len, arg_cap
    cdef char *msg_buf           # pa.size + 2 bytes when not NULL
    cdef size_t msg_len
    cdef Slice *argv             # arguments of a routed message
    cdef uint32_t argc, argv_cap

    cdef int parse(self, char *buf, size_t n) noexcept nogil
    # Bytes were read straight into msg_buf: k more are there.
    cdef int payload_filled(self, size_t k) noexcept nogil
    cdef void parser_free(self) noexcept nogil

    cdef int fast_pub(self, char *buf, size_t n, size_t *at) noexcept nogil
    cdef int end_arg(self, uint8_t state, char *arg, size_t n, bint in_arg_buf) noexcept nogil
    cdef int payload(self, char *buf, size_t n, size_t *at) noexcept nogil
    cdef int end_msg(self, char *msg) noexcept nogil
    cdef void empty_args(self, char *arg, size_t n) noexcept nogil
    cdef int parse_pub(self, char *arg, size_t n, bint header) noexcept nogil
    cdef int parse_remote_msg(self, char *arg, size_t n, bint header) noexcept nogil
    cdef int save_arg(self, const char *p, size_t n) noexcept nogil
    cdef void drop_arg(self) noexcept nogil
    cdef bint split_args(self, char *arg, size_t n) noexcept nogil
    cdef void rebase(self, char *old, char *new) noexcept nogil
    cdef int bad_operation(self, const char *buf, size_t n, size_t at) noexcept nogil

    # Handlers: PARSE_OK to go on, PARSE_PUNT or PARSE_CLOSED to stop. The message is in pa.m, CR LF behind its data.
    cdef int process_inbound_msg(self) noexcept nogil
    cdef int process_sub(self, char *arg, size_t n) noexcept nogil
    cdef int process_unsub(self, char *arg, size_t n) noexcept nogil
    cdef int process_remote_sub(self, char *arg, size_t n) noexcept nogil
    cdef int process_remote_unsub(self, char *arg, size_t n) noexcept nogil
    cdef int process_account_sub(self, char *arg, size_t n, bint add) noexcept nogil
    cdef int process_ping(self) noexcept nogil
    cdef int process_pong(self) noexcept nogil
    cdef int process_connect(self, char *arg, size_t n) noexcept nogil
    cdef int process_info(self, char *arg, size_t n) noexcept nogil
    cdef int process_err(self, char *arg, size_t n) noexcept nogil
    cdef int process_invalid_publish_subject(self) noexcept nogil
    cdef int auth_violation(self) noexcept nogil
    cdef int violation(self, int code, int64_t b, const char *data, size_t n) noexcept nogil
    cdef void trace_in_op(self, const char *op, const char *arg, size_t n) noexcept nogil


cdef int parse_size(const char *p, size_t n) noexcept nogil
