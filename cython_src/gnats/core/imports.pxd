"""What a connection has of imports (the import half of client.go): shadows of its subscriptions in other accounts, and
what services are told of it.

A subscription to something that the account imports as a stream gets a *shadow* in the account that exports it: another
subscription of the same client there, made, changed and undone by the owner together with its own.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.core.account cimport Account, StreamImport
from gnats.core.responses cimport ServiceExport
from gnats.core.slice cimport Slice
from gnats.core.subscriber cimport Subscriber
from gnats.core.sublist cimport Subscription
from gnats.core.transform cimport Transform


# A shadow for each import that `s` is about (addShadowSubscriptions); `some`: it may have some already.
cdef void add_shadows(Subscriber c, Account account, const Subscription *s, bint some) noexcept nogil
cdef void drop_shadows(Subscriber c, const Subscription *s) noexcept nogil
cdef void drop_all_shadows(Subscriber c) noexcept nogil
cdef void drop_some_shadows(Subscriber c) noexcept nogil
# The account imports other streams than before.
cdef void renew_shadows(Subscriber c) noexcept nogil
# Nobody may be listening to the reply subjects of `s` any more: forget the responses to them.
cdef void forget_requests(Subscriber c, Account account, const Subscription *s) noexcept nogil

# Post a measurement of a service to the control plane.
cdef void report_latency(Subscriber c, ServiceExport *se, int status, uint64_t requester, uint64_t responder,
                         int64_t elapsed, bint share, const char *header, size_t n) noexcept nogil


# What `subject` becomes: in few[:room] or, when it is longer, in memory to be freed; NULL when there is none.
cdef char *transformed(const Transform *t, const Slice *subject, uint64_t *rng, char *few, size_t room,
                       size_t *n) noexcept nogil
