"""Requests and responses through imported services (processServiceImport of client.go).

A request to an imported service, or a response to one, is routed again in the other account, by its publisher's poller
during its own delivery. It is another Message there; its `hop` chains the imports that it has come through.
"""
from gnats.core.messages.message cimport Message
from gnats.core.subjects.sublist cimport Subscription

# Handler of a service import's NativeSub; ctx is the ServiceImport.
cdef bint take_request(void *ctx, const Message *m, const Subscription *s) noexcept nogil
