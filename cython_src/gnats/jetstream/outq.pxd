"""Messages that a consumer is about to send, in order: gathered under its lock, sent without (jsOutQ of stream.go).

An entry is self-contained but for the body of a stored message, which it points to: whoever put that in sends it before
its thread is quiescent. No lock: the consumer's is held to append.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct Outgoing:
    uint32_t size            # of the entry, what follows it included
    uint32_t dest_n          # follows: where it goes,
    uint32_t reply_n         # its reply subject,
    uint32_t hdr_n           # and its header; 0: the stored one, if any
    uint64_t seq             # in the stream; 0: a status message
    uint64_t dseq
    uint64_t dc
    const char *subject      # as shown; NULL: where it goes
    const char *body         # of the stored message: header and payload, adjacent
    uint32_t subject_n
    uint32_t body_hdr_n      # of them the header
    uint32_t body_n          # all of them


cdef struct OutQ:
    char *p
    size_t n
    size_t cap


# Room for an entry with dest_n + reply_n + hdr_n bytes behind it, the first three set; NULL when out of memory.
cdef Outgoing *outq_add(OutQ *q, size_t dest_n, size_t reply_n, size_t hdr_n) noexcept nogil
# A status message: "NATS/1.0 <text>" CR LF, and `fields`, none or whole lines. False when out of memory.
cdef bint outq_status(OutQ *q, const char *dest, size_t dest_n, const char *reply, size_t reply_n, const char *text,
                      const char *fields) noexcept nogil
# The same with the counts of a request that ends.
cdef bint outq_ended(OutQ *q, const char *dest, size_t dest_n, const char *text, int64_t msgs,
                     int64_t bytes) noexcept nogil


cdef inline char *out_dest(Outgoing *o) noexcept nogil:
    return <char *> (o + 1)


cdef inline char *out_reply(Outgoing *o) noexcept nogil:
    return <char *> (o + 1) + o.dest_n


cdef inline char *out_hdr(Outgoing *o) noexcept nogil:
    return <char *> (o + 1) + o.dest_n + o.reply_n
