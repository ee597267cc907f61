"""Tracing of messages whose headers ask for it (msgtrace.go): what happens to one is noted while it is handled, and
then posted to the control plane, which tells the subject that the message or its account names.

A trace belongs to the producer's poller. `mt` is NULL nearly always, and for messages without a header nothing is done.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.guard cimport Guarded
from gnats.core.parser cimport PubArg, Slice

cdef enum:
    TRACE_NOT     # handle the message, there is nothing to trace
    TRACE_SKIP    # do not handle it
    TRACE_ON

# Why a message was not delivered to a subscription; gnats.msgtrace words them.
cdef enum:
    EGRESS_OK
    EGRESS_NO_ECHO
    EGRESS_SUB_DENY
    EGRESS_SUB_CLOSED
    EGRESS_CLIENT_CLOSED
    EGRESS_AUTO_UNSUBSCRIBED
    EGRESS_NO_STALL

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


cdef class Traced(Guarded):
    """A connection whose messages may be traced; see Client."""
    cdef MsgTrace *mt     # of the message in hand; NULL for none
    cdef uint8_t traced   # the message in hand was asked about

    # Does the header of the message in hand say anything about tracing? A quick look, that may be wrong with yes.
    cdef bint may_be_traced(self, const char *msg) noexcept nogil
    # What to do with it. `disable`: others are not to trace it.
    cdef int init_msg_trace(self, const char *msg, bint *disable) noexcept nogil
    # A message is over the largest payload: trace that, if what has come of its header says so.
    cdef void trace_over_max_payload(self) noexcept nogil
    # Post what was noted.
    cdef void send_msg_trace(self) noexcept nogil


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

# The message, which `pa` tells of, with Nats-Trace-Dest set to `value` (NULL: to what says that it is not to be
# traced): in memory to be freed, or NULL when there is none. `sizes[:24]` has to live as long.
cdef char *set_trace_dest(PubArg *pa, const char *msg, size_t *n, const Slice *value, char *sizes) noexcept nogil
