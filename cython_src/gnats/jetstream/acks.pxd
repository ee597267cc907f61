"""Acknowledgements: the reply subject of a delivered message, and what is answered on it (parts of consumer.go).

$JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ts>.<pending>, or, as version 2,
$JS.ACK.<domain>.<account hash>.<stream>.<consumer>. and the same numbers, perhaps with more tokens behind them.
Both are understood, whichever is sent.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    ACK_NUMBERS = 5 * 21     # bytes of the numbers in a reply subject, dots included
    # what an acknowledgement says
    ACK_NOTHING = 0          # something else: answered, without effect
    ACK_ACK = 1
    ACK_NEXT = 2             # ack, and the next request follows
    ACK_NAK = 3
    ACK_PROGRESS = 4
    ACK_TERM = 5


cdef struct AckInfo:
    uint64_t sseq, dseq      # in the stream, of the consumer
    uint64_t dc              # how often it was delivered
    int64_t ts
    uint64_t pending


# What a reply subject says; False when it is none, all of it 0 then.
cdef bint ack_reply_info(const char *subject, size_t n, AckInfo *info) noexcept nogil
# The reply subject: prefix[:n] ("$JS.ACK.S.C") and the numbers, n + ACK_NUMBERS bytes at most; how many.
cdef size_t ack_reply(char *out, const char *prefix, size_t n, const AckInfo *info) noexcept nogil
# What a payload says; rest[0][:rest_n] is what follows the verb.
cdef int parse_ack(const char *p, size_t n, const char **rest, size_t *rest_n) noexcept nogil
# The delay that a -NAK asks for, in ns, from what follows it; False when it asks for none. bad[0]: it cannot be read.
cdef bint nak_delay(const char *p, size_t n, int64_t *delay, bint *bad) noexcept nogil
# What is left of p[:n] without the blanks around it.
cdef const char *trim(const char *p, size_t *n) noexcept nogil
# A number in decimal; behind its last digit.
cdef char *put_uint(char *out, uint64_t value) noexcept nogil
