"""What a connection has of imports (the import half of client.go): shadows of its subscriptions in other accounts, and
what services are told of it.

A subscription to something that the account imports as a stream gets a *shadow* in the account that exports it: another
subscription of the same client there, made, changed and undone by the owner together with its own.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.account cimport Account, StreamImport
from gnats.core.guard cimport Guarded
from gnats.core.responses cimport ServiceExport
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Subscription
from gnats.core.subtable cimport SubTable
from gnats.core.transform cimport Transform


# What a client is asked to tell about itself, as JSON in pieces: what comes before its account, before its round trip
# time, and behind the server.
cdef struct ClientDetails:
    uint32_t head_n, mid_n, tail_n
    char data[1]


cdef class Importer(Guarded):
    cdef SubTable shadows           # by the sid of their subscription
    cdef ClientDetails *details     # NULL until set; atomic

    # -- owner: shadows --
    # `some`: it may have some already
    cdef void add_shadows(self, Account account, const Subscription *s, bint some) noexcept nogil
    cdef bint has_shadow(self, const Subscription *s, const StreamImport *im) noexcept nogil
    cdef bint add_shadow(self, const Subscription *s, StreamImport *im, int how, const char *common,
                         size_t n) noexcept nogil
    cdef void log_import(self, const Subscription *shadow, Slice account) noexcept nogil
    cdef void drop_shadows(self, const Subscription *s) noexcept nogil
    cdef void drop_all_shadows(self) noexcept nogil
    cdef void drop_some_shadows(self) noexcept nogil
    cdef void renew_shadows(self) noexcept nogil
    # Nobody may be listening to the reply subjects of `s` any more: forget the responses to them.
    cdef void forget_requests(self, Account account, const Subscription *s) noexcept nogil

    # Tell the control plane of a measurement.
    cdef void report(self, ServiceExport *se, int status, uint64_t requester, uint64_t responder, int64_t elapsed,
                     bint share, const char *header, size_t n) noexcept nogil


# What `subject` becomes: in few[:room] or, when it is longer, in memory to be freed; NULL when there is none.
cdef char *transformed(const Transform *t, const Slice *subject, uint64_t *rng, char *few, size_t room,
                       size_t *n) noexcept nogil
