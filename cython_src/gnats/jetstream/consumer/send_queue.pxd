"""A queue of the messages that a consumer sends next: gathered under its lock, sent without (jsOutQ of stream.go).

An entry has all its bytes, except the subject and body of a stored message, to which it points. The thread that adds
such an entry sends it before it is quiescent. The consumer's lock is held to add.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct Outgoing:
    uint32_t size            # bytes of the entry, with the three texts that follow it
    uint32_t dest_n          # first text: the subject to publish to
    uint32_t reply_n         # second text: the reply subject
    uint32_t hdr_n           # third text: the header; 0: that of the body
    uint64_t seq             # stream sequence; 0: a status message
    uint64_t dseq            # consumer sequence
    uint64_t dc              # number of deliveries
    uint64_t after           # leaves when as many proposals are committed; 0: at once, behind those before it
    const char *subject      # the subject shown to the client; NULL: the one published to
    const char *body         # header and payload of the stored message, adjacent
    uint32_t subject_n
    uint32_t body_hdr_n      # bytes of the header in `body`
    uint32_t body_n          # bytes of `body`


cdef struct OutQ:
    char *p
    size_t at                # what is before this place was taken
    size_t n
    size_t cap


# Add an entry with room for its texts; sets its lengths only. NULL when out of memory.
cdef Outgoing *outq_add(OutQ *q, size_t dest_n, size_t reply_n, size_t hdr_n) noexcept nogil
# Take the entry out that was added last.
cdef void outq_drop(OutQ *q, const Outgoing *o) noexcept nogil
# Add a status message: "NATS/1.0 <text>" CR LF, then `fields`, whole lines or empty. False when out of memory.
cdef bint outq_status(OutQ *q, const char *dest, size_t dest_n, const char *reply, size_t reply_n, const char *text,
                      const char *fields) noexcept nogil
# Add the status message that ends a pull request, with its counts of messages and bytes still to come.
cdef bint outq_ended(OutQ *q, const char *dest, size_t dest_n, const char *text, int64_t msgs,
                     int64_t bytes) noexcept nogil
# Add an answer without any bytes, to leave when `after` proposals are committed. False when out of memory.
cdef bint outq_answer(OutQ *q, const char *dest, size_t dest_n, uint64_t after) noexcept nogil
# Move what may leave when `committed` proposals are committed to an empty queue. What there is no memory for stays.
cdef void outq_take(OutQ *q, OutQ *to, uint64_t committed) noexcept nogil
# Drop what may not leave yet.
cdef void outq_cut(OutQ *q, uint64_t committed) noexcept nogil


cdef inline char *out_dest(Outgoing *o) noexcept nogil:
    return <char *> (o + 1)


cdef inline char *out_reply(Outgoing *o) noexcept nogil:
    return <char *> (o + 1) + o.dest_n


cdef inline char *out_hdr(Outgoing *o) noexcept nogil:
    return <char *> (o + 1) + o.dest_n + o.reply_n
