"""Messages on their way to subscribers (the delivering half of client.go).

The producer's poller walks the match result and delivers, to connections of its own directly, to others under their
lock.
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
    size_t pay_n         # CR LF included, but for the tail
    size_t hdr           # bytes of the payload that are a header
    size_t size          # for the statistics: without it
    size_t tail_n        # 2: CR LF follows that is not in the payload's memory


cdef class Deliverer(Importer):
    # under lock
    cdef Subscription **reap      # auto-unsubscribed by other threads' deliveries
    cdef uint32_t nreap
    cdef size_t reap_cap

    # -- of the producer --
    cdef bint deliver_shadow(self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare) noexcept nogil
    cdef bint deliver_traced(self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare) noexcept nogil
    cdef bint deliver_export(self, Subscription *s, StreamImport *im, char *msg, size_t n, Delivery *full,
                             Delivery *bare) noexcept nogil
    cdef bint deliver_msg(self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare) noexcept nogil
    cdef void delivery(self, Delivery *d, char *msg, size_t n, bint bare) noexcept nogil
    cdef bint deliver_internal(self, Deliverer dest, const Subscription *s, char *msg, size_t n) noexcept nogil
    # To a native subscriber, or the one that something is a shadow of.
    cdef bint deliver_native(self, Subscription *s, char *msg, size_t n) noexcept nogil
    cdef bint deliver_native_shadow(self, Deliverer dest, const Subscription *shadow, char *msg,
                                    size_t n) noexcept nogil
    cdef void touch(self, Deliverer dest) noexcept nogil
    # -- of the receiver --
    cdef bint deliver_local(self, Deliverer producer, const Subscription *s, const Delivery *d) noexcept nogil
    cdef bint deliver_remote(self, Deliverer producer, Subscription *s, const Delivery *d) noexcept nogil
    cdef bint reap_later(self, Subscription *s) noexcept nogil
    cdef void trace_out(self, Deliverer producer, const Subscription *s, const Delivery *d) noexcept nogil


# Stands before a subscription with SUB_NATIVE in its block. Whoever delivers calls `fn` in place, after all other
# subscribers but with the message still in hand: producer.pa has its subject, reply and header size, msg n - 2 bytes of
# header and payload. All of it is good until fn returns. No lock is held; fn may publish with another client
# (PollState.js), not with `producer`. False: it was just being unsubscribed, and has not heard the message.
cdef struct NativeSub:
    bint (*fn)(void *ctx, Deliverer producer, const Subscription *s, char *msg, size_t n) noexcept nogil
    void *ctx            # lives until every poller has been between two batches since the unsubscription


cdef inline NativeSub *native_sub(const Subscription *s) noexcept nogil:
    return <NativeSub *> (<char *> s - sizeof(NativeSub))
