"""Acknowledgements: the reply subjects of delivered messages, and the payloads sent to them (parts of consumer.go).

Version 1: $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<ts>.<pending>. Version 2:
$JS.ACK.<domain>.<account hash>.<stream>.<consumer>. and the same numbers, perhaps with more tokens behind them.
Both are parsed, whichever of them the server sends.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    ACK_NUMBERS = 5 * 21     # bytes of the numbers in a reply subject, dots included
    # the kind of an acknowledgement
    ACK_NOTHING = 0          # unknown: answered, without effect
    ACK_ACK = 1
    ACK_NEXT = 2             # an ack, followed by a pull request
    ACK_NAK = 3
    ACK_PROGRESS = 4
    ACK_TERM = 5


cdef struct AckInfo:
    uint64_t sseq, dseq      # stream sequence, consumer sequence
    uint64_t dc              # number of deliveries
    int64_t ts               # when the message was stored, ns since 1970
    uint64_t pending         # messages still to be delivered after it


# Parse a reply subject. False when it is not one of a delivered message; info is zeroed then.
cdef bint ack_reply_info(const char *subject, size_t n, AckInfo *info) noexcept nogil
# Write the reply subject: prefix[:n] ("$JS.ACK.S.C") and the numbers. Return its length, n + ACK_NUMBERS at most.
cdef size_t ack_reply(char *out, const char *prefix, size_t n, const AckInfo *info) noexcept nogil
# Parse a payload. Return the kind; rest[0][:rest_n[0]] is the text behind the verb.
cdef int parse_ack(const char *p, size_t n, const char **rest, size_t *rest_n) noexcept nogil
# Parse the delay, in ns, from the text behind a -NAK. False when it has none, or, with bad[0] set, an invalid one.
cdef bint nak_delay(const char *p, size_t n, int64_t *delay, bint *bad) noexcept nogil
# Cut blanks off both ends of p[:n[0]]. Return the beginning, and set n[0].
cdef const char *trim(const char *p, size_t *n) noexcept nogil
# Write a number in decimal. Return a pointer behind its last digit.
cdef char *put_uint(char *out, uint64_t value) noexcept nogil
