"""What a mirror, or a stream with sources, gets from a consumer of another stream (processInboundMirrorMsg and
processInboundSourceMsg of stream.go).

The other stream's consumer delivers to a subject of its own, without acknowledgements; a native subscription stores
what comes in place. The consumer numbers what it delivers: a gap in that, or a message that cannot be stored, ends it,
and the control plane, which is told, has a new consumer start behind what has been stored.

Lock: the stream's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.sublist cimport Subscription
from gnats.core.transform cimport Transform
from gnats.jetstream.streamcore cimport StreamCore

cdef enum:
    # EV_JETSTREAM's a
    SOURCE_LOST = 1
    SOURCE_CAUGHT_UP = 2         # a mirror is nearly as far as its origin: told once


cdef class SourceConsumer:
    cdef readonly StreamCore stream
    cdef Subscription *sub         # the control loop's
    cdef bytes cname, head, tail, ident    # of the consumer; and what of the source header is always the same
    cdef const char *cname_p
    cdef const char *head_p
    cdef const char *tail_p
    cdef const char *ident_p
    cdef size_t cname_n, head_n, tail_n, ident_n
    cdef bint mirror
    cdef uint32_t ntrs
    cdef Transform **trs           # the first one that matches says what becomes of a subject
    # under the stream's lock
    cdef bint closed
    cdef bint tell_caught_up
    cdef uint64_t sseq             # how far it has come in the origin: of the last message, or before the first
    cdef uint64_t stored           # of the last one that has been stored; 0: none has
    cdef uint64_t dseq             # by the consumer's count
    cdef uint64_t lag              # messages behind it, by what the consumer said
    # atomic
    cdef int64_t last              # monotonic ns; when something came, or it was started

    # Take nothing more, and say so. The lock is held.
    cdef void lose(self) noexcept nogil
