"""Imports of a connection (the import half of client.go): shadows of its subscriptions in other accounts, and
measurements of the services that it uses.

A subscription that overlaps a stream import gets a *shadow* in the account that exports the stream: another
subscription of the same client there. The owner makes, changes and removes it together with the original.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.accounts.account cimport Account, StreamImport
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.responses cimport ServiceExport
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.transform cimport Transform


# Make a shadow for each import that `s` overlaps (addShadowSubscriptions); `some`: skip imports that it has one for.
cdef void add_shadows(Subscriber c, Account account, const Subscription *s, bint some) noexcept nogil
# A link's queue subscription counts as many members as `weight` from now on.
cdef void weigh_shadows(Subscriber c, const Subscription *s, uint32_t weight) noexcept nogil
# Remove the shadows of one subscription; of all; of some, once the connection is closed.
cdef void drop_shadows(Subscriber c, const Subscription *s) noexcept nogil
cdef void drop_all_shadows(Subscriber c) noexcept nogil
cdef void drop_some_shadows(Subscriber c) noexcept nogil
# Make and remove shadows after the account's stream imports have changed.
cdef void renew_shadows(Subscriber c) noexcept nogil
# `s` is removed (NULL: several are): forget the responses for which no subscriber is left.
cdef void forget_requests(Subscriber c, Account account, const Subscription *s) noexcept nogil

# Post a measurement of a service to the control plane.
cdef void report_latency(Subscriber c, ServiceExport *se, int status, uint64_t requester, uint64_t responder,
                         int64_t elapsed, bint share, const char *header, size_t n) noexcept nogil
# The same for an answer that came over a link to `reply`: the responder's server measures it, too.
cdef void report_first_half(Subscriber c, ServiceExport *se, uint64_t requester, int64_t elapsed, bint share,
                            const char *header, size_t n, const Slice *reply) noexcept nogil


# Apply a transform. The result is in few[:room] or, when it is longer, in memory to be freed; NULL without memory.
cdef char *transformed(const Transform *t, const Slice *subject, uint64_t *rng, char *few, size_t room,
                       size_t *n) noexcept nogil
