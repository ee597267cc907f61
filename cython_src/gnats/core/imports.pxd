"""What imports do to a connection: shadows of its subscriptions in other accounts, and its messages on their way
through imported services (the import half of client.go).

A subscription to something that the account imports as a stream gets a *shadow* in the account that exports it: another
subscription of the same client there, made, changed and undone by the owner together with its own.

A message to an imported service, or a response, is routed once more in the other account, by the poller of its producer
and from within its delivery: `hop` chains what it has come through so far.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.account cimport Account, ServiceImport, StreamImport
from gnats.core.mappings cimport Mappings
from gnats.core.msgtrace cimport MsgTrace, Traced
from gnats.core.parser cimport Slice
from gnats.core.responses cimport Expected, ServiceExport
from gnats.core.sublist cimport MatchResult, Subscription
from gnats.core.subtable cimport SubTable
from gnats.core.transform cimport Transform


# One service import, or response, that the message in hand is going through.
cdef struct Hop:
    Hop *before
    ServiceExport *se
    uint32_t depth
    uint8_t request        # 0: a response
    uint8_t share          # this import's
    uint8_t details        # what the header says about the requester: all that is shared,
    uint8_t server         # or the server's name at least
    Slice reply            # the first import's, if it is of a fast batch, which is told by it; n is 0 otherwise
    # Who asks, for those who are asked in the server itself: they take it from here, never from a header, which a
    # client can write.
    void *account          # of a request: borrowed Account, the one that imports
    Slice info             # the requester as JSON, what request_header() says; n is 0 where it says nothing


# What a client is asked to tell about itself, as JSON in pieces: what comes before its account, before its round trip
# time, and behind the server.
cdef struct ClientDetails:
    uint32_t head_n, mid_n, tail_n
    char data[1]


cdef class Importer(Traced):
    cdef SubTable shadows           # by the sid of their subscription
    cdef Hop *hop
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

    # -- the producer's poller: mappings and services --
    cdef void map_subject(self, Mappings *mappings) noexcept nogil
    cdef void trace_mapping(self, const char *to, size_t n) noexcept nogil
    # Where a subscription of an import takes the message in hand; whether somebody received it.
    cdef bint deliver_import(self, const Subscription *s, char *msg, size_t n) noexcept nogil
    cdef bint process_service_import(self, ServiceImport *si, char *msg, size_t n) noexcept nogil
    cdef bint process_service_import_response(self, Account account, char *msg, size_t n) noexcept nogil
    # Is the request in hand to be measured? `by_header`: because its header asks for it.
    cdef bint should_sample(self, ServiceExport *se, const char *msg, bint *by_header) noexcept nogil
    cdef void report(self, ServiceExport *se, int status, uint64_t requester, uint64_t responder, int64_t elapsed,
                     bint share, const char *header, size_t n) noexcept nogil
    cdef void expect(self, const ServiceExport *se) noexcept nogil
    cdef bint enter(self, Hop *hop) noexcept nogil
    # The message as it goes on into another account, its trace ended or sent on there; NULL: it does not go on.
    cdef char *trace_import(self, Account account, ServiceExport *se, Account exporter, const Slice *subject,
                            const Slice *to, bint response, const char *msg, size_t *n, char *dest,
                            char *sizes) noexcept nogil
    cdef void end_trace_import(self, Account exporter, MsgTrace *t, const Slice *before) noexcept nogil
    cdef char *request_header(self, Account account, Hop *hop, bint chained, char *msg, size_t *n,
                              char *sizes) noexcept nogil
    cdef bint route_in(self, Account account, const char *to, size_t tn, const char *reply, size_t rn, char *msg,
                       size_t n) noexcept nogil
    # of the class below
    cdef bint process_msg_results(self, MatchResult *r, char *msg, size_t n) noexcept nogil


# What `subject` becomes: in few[:room] or, when it is longer, in memory to be freed; NULL when there is none.
cdef char *transformed(const Transform *t, const Slice *subject, uint64_t *rng, char *few, size_t room,
                       size_t *n) noexcept nogil
