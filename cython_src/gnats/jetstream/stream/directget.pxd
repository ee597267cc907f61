"""Direct gets: requests for messages of a stream, answered in place by the poller that delivers the request
(processDirectGetRequest and processDirectGetLastBySubjectRequest of stream.go; ADR-31).
"""
from libc.stddef cimport size_t

from gnats.core.messages.message cimport Message
from gnats.core.subjects.sublist cimport Subscription

# Functions of a stream's NativeSubs; ctx is the StreamCore. The first answers $JS.API.DIRECT.GET.<stream>, the second
# $JS.API.DIRECT.GET.<stream>.<subject>.
cdef bint process_direct_get(void *ctx, const Message *m, const Subscription *sub) noexcept nogil
cdef bint process_direct_get_last(void *ctx, const Message *m, const Subscription *sub) noexcept nogil
