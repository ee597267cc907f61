"""Direct gets: messages of a stream for whoever asks, answered in place by whoever delivers the question
(processDirectGetRequest and processDirectGetLastBySubjectRequest of stream.go; ADR-31).
"""
from libc.stddef cimport size_t

from gnats.core.delivery cimport Deliverer
from gnats.core.sublist cimport Subscription

# Functions of NativeSubs, whose ctx is the StreamCore: $JS.API.DIRECT.GET.<stream>, and the same with a subject.
cdef bint process_direct_get(void *ctx, Deliverer producer, const Subscription *sub, char *msg, size_t n) noexcept nogil
cdef bint process_direct_get_last(void *ctx, Deliverer producer, const Subscription *sub, char *msg,
                                  size_t n) noexcept nogil
