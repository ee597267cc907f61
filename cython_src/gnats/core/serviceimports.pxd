"""Messages on their way through imported services (processServiceImport of client.go).

A request to an imported service, or a response, is routed once more in the other account, by the poller of its
publisher and while its own delivery goes on. The message there is another one; its `hop` chains the imports so far.
"""
from gnats.core.message cimport Message
from gnats.core.sublist cimport Subscription

# The function of a service import's NativeSub; ctx is the ServiceImport.
cdef bint take_request(void *ctx, const Message *m, const Subscription *s) noexcept nogil
