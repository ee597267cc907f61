"""The flow control of a push consumer: how many bytes are under way to its client (consumer.go).

The consumer sends the client a request when half of the window, the bytes that may be under way, is used. The answer
takes the bytes before the request off the bytes under way, and doubles the window. The consumer's lock is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice


cdef struct FlowControl:
    int64_t maxpb, pblimit     # the most bytes under way, now and ever; 0: no flow control
    int64_t pbytes             # bytes under way
    int64_t fcsz               # how many of them the answer to the request takes off
    char *fcid                 # the reply subject of the request that is unanswered: prefix_n bytes, and an id
    size_t fcid_n              # 0: none is unanswered
    size_t prefix_n


# Keep the prefix of the reply subjects, with its final dot. False when out of memory.
cdef bint flow_init(FlowControl *f, const char *prefix, size_t n) noexcept nogil
# Let only so many bytes be under way from now on, beginning with a small window.
cdef void flow_start(FlowControl *f) noexcept nogil
cdef void flow_free(FlowControl *f) noexcept nogil
# Return whether a request is due after a delivery of `size` bytes. full: no more messages may be delivered before the
# answer acknowledges some.
cdef bint need_flow_control(FlowControl *f, int64_t size, bint full) noexcept nogil
# Begin a request: set fcid (the part of sendFlowControl without the message).
cdef void flow_request(FlowControl *f, PollState *ps) noexcept nogil
# Take the answered bytes off, and let the window grow. False when this is not the expected answer.
cdef bint flow_answered(FlowControl *f, const Slice *subject) noexcept nogil


cdef inline bint is_stalled(const FlowControl *f) noexcept nogil:
    """Return whether the window is used up."""
    return f.maxpb > 0 and f.pbytes > f.maxpb
