"""Direct gets: messages of a stream for whoever asks, answered in place by whoever delivers the question
(processDirectGetRequest and processDirectGetLastBySubjectRequest of stream.go; ADR-31).
"""
from libc.stddef cimport size_t

from gnats.core.message cimport Message
from gnats.core.sublist cimport Subscription

# Functions of NativeSubs, whose ctx is the StreamCore: $JS.API.DIRECT.GET.<stream>, and the same with a subject.
cdef bint process_direct_get(void *ctx, const Message *m, const Subscription *sub) noexcept nogil
cdef bint process_direct_get_last(void *ctx, const Message *m, const Subscription *sub) noexcept nogil
