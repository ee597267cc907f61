"""Notes of what happens to a message that is traced (msgtrace.go).

A trace belongs to the poller that routes the message. core.tracing begins and ends it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.slice cimport Slice


# Why a message was refused.
cdef enum:
    REFUSED_SUBJECT = 1
    REFUSED_REPLY = 2
    REFUSED_SIZE = 3

# Why a stream did not take a message, where that is no error of JetStream's with this number.
cdef enum:
    TRACE_DUPLICATE = 1
    TRACE_LAST_SUBJECT_SEQUENCE = 2


# Followed by the header, the destination, and entries.
cdef struct TraceHead:
    uint32_t header_n
    uint32_t dest_n
    int64_t size          # of the message


# Followed by its texts.
cdef struct TraceEntry:
    int64_t ts            # ns since 1970
    uint64_t cid
    uint32_t n[3]
    char kind
    uint8_t code
    uint8_t unused[2]


cdef struct MsgTrace:
    uint8_t only          # the message is not delivered, only traced
    uint8_t failed        # out of memory
    Slice dest            # where traces of what is made of the message go; service imports change it
    size_t n
    size_t room
    char *data


# A trace of a message of `size` bytes, the first n of them its header, to be told to `dest`, which lives as long as the
# message or the batch. NULL when out of memory.
cdef MsgTrace *trace_new(const char *header, size_t n, const Slice *dest, size_t size) noexcept nogil
cdef void trace_free(MsgTrace *t) noexcept nogil

# The message comes in.
cdef void trace_ingress(MsgTrace *t, uint64_t cid, const Slice *subject) noexcept nogil
# Notes in a trace; `name` is an account's, in JSON with quotes.
cdef void trace_mapping(MsgTrace *t, const Slice *to) noexcept nogil
cdef void trace_refused(MsgTrace *t, int what, const Slice *subject) noexcept nogil
cdef void trace_stream_export(MsgTrace *t, const Slice *name, const Slice *to) noexcept nogil
cdef void trace_service_import(MsgTrace *t, const Slice *name, const Slice *subject, const Slice *to) noexcept nogil
cdef void trace_egress(MsgTrace *t, uint64_t cid, const Slice *subject, const Slice *queue, int error) noexcept nogil
# A stream gets it; it is all right, under the subject that it is to be stored with; or it is not: the error's number,
# with what its text has besides, or -errno.
cdef void trace_jetstream(MsgTrace *t, const Slice *stream) noexcept nogil
cdef void trace_jetstream_subject(MsgTrace *t, const Slice *subject, bint no_interest) noexcept nogil
cdef void trace_jetstream_error(MsgTrace *t, int64_t error, const char *text, size_t n) noexcept nogil
