"""Notes of what happens to a traced message (msgtrace.go).

A trace belongs to the poller that routes the message. core.routing.tracing begins and ends it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.runtime.slice cimport Slice


# Why a message was refused.
cdef enum:
    REFUSED_SUBJECT = 1
    REFUSED_REPLY = 2
    REFUSED_SIZE = 3

# Why a stream did not store a message, where JetStream has no error with a number for it.
cdef enum:
    TRACE_DUPLICATE = 1
    TRACE_LAST_SUBJECT_SEQUENCE = 2


# The beginning of an EV_MSG_TRACE's data; header, destination and entries follow.
cdef struct TraceHead:
    uint32_t header_n
    uint32_t dest_n
    int64_t size          # bytes of the message
    uint32_t hops         # servers that the message was sent to
    uint8_t unused[4]


# A note; its texts follow.
cdef struct TraceEntry:
    int64_t ts            # ns since 1970
    uint64_t cid
    uint32_t n[3]         # bytes of each text
    char kind
    uint8_t code
    uint8_t unused[2]


cdef struct MsgTrace:
    uint8_t only          # trace the message without delivering it
    uint8_t failed        # memory ran out: the trace is not posted
    uint32_t hops         # servers that the message has been sent to
    Slice hop             # which of the messages of the servers before this one it is, "2.1"; n is 0: of a client
    size_t n
    size_t room
    char *data


# Make a trace of a message of `size` bytes, the first n of them its header, to be published to `dest`. NULL when out of
# memory.
cdef MsgTrace *trace_new(const char *header, size_t n, const Slice *dest, size_t size) noexcept nogil
cdef void trace_free(MsgTrace *t) noexcept nogil

# Note that the message has come in, over a connection of this kind; `account` is a JSON string.
cdef void trace_ingress(
    MsgTrace *t, uint8_t kind, uint64_t cid, const Slice *subject, const Slice *account) noexcept nogil
# Add a note; `name` is an account's, a JSON string.
cdef void trace_mapping(MsgTrace *t, const Slice *to) noexcept nogil
cdef void trace_refused(MsgTrace *t, int what, const Slice *subject) noexcept nogil
cdef void trace_stream_export(MsgTrace *t, const Slice *name, const Slice *to) noexcept nogil
cdef void trace_service_import(MsgTrace *t, const Slice *name, const Slice *subject, const Slice *to) noexcept nogil
cdef void trace_egress(MsgTrace *t, uint64_t cid, const Slice *subject, const Slice *queue, int error) noexcept nogil
# Note that the message was sent to another server, as its message `hop`, or was not: an Egress.
cdef void trace_hop(MsgTrace *t, uint8_t kind, uint64_t cid, const Slice *hop, int error) noexcept nogil
# Write the next hop to out[:room], as text; return it, cut off if it is too long.
cdef Slice trace_next_hop(MsgTrace *t, char *out, size_t room) noexcept nogil
# Notes of a stream. The first says that it gets the message, the second that the message may be stored under this
# subject. The third says that it is not stored: `error` is the number of the error, or -errno, `text` the variable part
# of its text.
cdef void trace_jetstream(MsgTrace *t, const Slice *stream) noexcept nogil
cdef void trace_jetstream_subject(MsgTrace *t, const Slice *subject, bint no_interest) noexcept nogil
cdef void trace_jetstream_error(MsgTrace *t, int64_t error, const char *text, size_t n) noexcept nogil
