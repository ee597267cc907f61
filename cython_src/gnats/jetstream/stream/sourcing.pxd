"""Store the messages that a consumer of another stream, the origin, delivers to a mirror or a stream with sources
(processInboundMirrorMsg and processInboundSourceMsg of stream.go).

The consumer delivers without acknowledgements to a subject made for it, where a native subscription stores each message
in place. After a gap in the consumer's sequences, or a message that cannot be stored, a SourceConsumer stores nothing
more and posts SOURCE_LOST. The control plane then starts a new consumer behind the last message that was stored.

Lock: the stream's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.transform cimport Transform
from gnats.jetstream.state.streamcore cimport StreamCore

cdef enum:
    # `a` of an EV_JETSTREAM event
    SOURCE_LOST = 1
    SOURCE_CAUGHT_UP = 2         # a mirror has nearly reached its origin's end; posted once


cdef class SourceConsumer:
    cdef readonly StreamCore stream
    cdef Subscription *sub         # of the control loop alone
    cdef bytes cname, head, tail, ident    # the consumer's name; the constant parts of the source header
    cdef const char *cname_p
    cdef const char *head_p
    cdef const char *tail_p
    cdef const char *ident_p
    cdef size_t cname_n, head_n, tail_n, ident_n
    cdef bint mirror
    cdef uint32_t ntrs
    cdef Transform **trs           # ntrs of them; the first that matches a subject transforms it
    # under the stream's lock
    cdef bint closed
    cdef bint post_caught_up       # SOURCE_CAUGHT_UP is still to be posted
    cdef uint64_t sseq             # origin's sequence of the last message handled; at first, of the one before
    cdef uint64_t stored           # origin's sequence of the last message stored; 0: none
    cdef uint64_t dseq             # consumer sequence of the last message handled
    cdef uint64_t lag              # messages that the consumer still had to deliver after that
    # atomic
    cdef int64_t last              # when a message or a heartbeat last came, or start() was called; monotonic ns

    # Store nothing more, and post SOURCE_LOST. The lock is held.
    cdef void lose(self) noexcept nogil
