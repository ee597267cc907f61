"""A client (the protocol half of client.go): verbs, subscriptions, and messages on their way to subscribers.

Subscriptions are changed by the owner under the connection's lock, so that others may read them under it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.account cimport StreamImport
from gnats.core.imports cimport Importer
from gnats.core.sublist cimport MatchResult, Subscription


# One message on its way to subscribers: what comes before the sid, between it and the payload, and the payload.
cdef struct Delivery:
    const char *pre      # NULL until it is needed
    size_t pre_n
    const char *mid
    size_t mid_n
    const char *pay
    size_t pay_n         # CR LF included
    size_t hdr           # bytes of the payload that are a header
    size_t size          # for the statistics: without it


cdef class Client(Importer):
    # under lock
    cdef Subscription **reap      # auto-unsubscribed by other threads' deliveries
    cdef uint32_t nreap, reap_cap

    # subscriptions
    cdef Subscription *add_sub(self, char *subject, size_t sn, char *queue, size_t qn, char *sid, size_t n,
                               int *error) noexcept nogil
    cdef void touch(self, Client dest) noexcept nogil
    cdef void trace_out(self, const Subscription *s, const Delivery *d) noexcept nogil
    # messages
    # Handle a message whose header may ask for a trace.
    cdef int refuse_msg(self, int what) noexcept nogil
    cdef int process_traced_msg(self, char *msg, size_t n) noexcept nogil
    cdef bint route_msg(self, char *msg, size_t n) noexcept nogil
    cdef bint deliver_shadow(self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare) noexcept nogil
    cdef bint deliver_traced(self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare) noexcept nogil
    cdef bint deliver_export(self, Subscription *s, StreamImport *im, char *msg, size_t n, Delivery *full,
                             Delivery *bare) noexcept nogil
    cdef bint deliver_msg(self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare) noexcept nogil
    cdef void delivery(self, Delivery *d, char *msg, size_t n, bint bare) noexcept nogil
    cdef bint deliver_local(self, Client producer, const Subscription *s, const Delivery *d) noexcept nogil
    cdef bint deliver_remote(self, Client producer, Subscription *s, const Delivery *d) noexcept nogil
    cdef bint refuse_more(self, uint32_t reason) noexcept nogil
    cdef bint reap_later(self, Subscription *s) noexcept nogil
    cdef bint deliver_internal(self, Client dest, const Subscription *s, char *msg, size_t n) noexcept nogil
    cdef void no_responders(self) noexcept nogil
