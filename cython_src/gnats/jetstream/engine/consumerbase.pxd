"""The part of a consumer that its stream and the pollers use; jetstream.consumer implements it.

So the stream need not import gnats.jetstream.consumer. A stream's consumers are in its ConsumerList
(gnats.jetstream.state.consumerlist), and stay alive until no thread can be walking it.
"""
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.subjects.sublist cimport Subscription
from gnats.store.index.filter cimport Filter


cdef class ConsumerBase


# The functions of a consumer that its stream and the pollers call.
cdef struct ConsumerType:
    # Count a newly stored message that passes the filter. The store's lock is held. True: call run() at the end of the
    # batch.
    bint (*stored)(ConsumerBase o, uint64_t seq) noexcept nogil
    # Deliver. No lock is held; the thread is online.
    void (*run)(ConsumerBase o, PollState *ps) noexcept nogil
    # Have the control loop call run(). Any thread, with any lock held above the timers'. Needs no memory.
    void (*kick)(ConsumerBase o) noexcept nogil
    # Count off a message that is removed, other than by a purge (decStreamPending). The store's lock is held. n == 0:
    # it passes the filter. True: call removed() later, since the message may be pending.
    bint (*count_off)(ConsumerBase o, uint64_t seq, const char *subject, uint32_t n) noexcept nogil
    # Forget a removed message that may be pending. No lock is held.
    void (*removed)(ConsumerBase o, uint64_t seq) noexcept nogil
    # Note that `subject` (n == 0: everything) was purged. The stream now has the sequences `first` to `last`;
    # subject_first is the first message left of the subject, 0 for none. Called with n == 0 also when the stream has
    # removed many messages otherwise. No lock is held.
    void (*purged)(ConsumerBase o, uint64_t first, uint64_t last, const char *subject, uint32_t n,
                   uint64_t subject_first) noexcept nogil
    # Return whether the consumer still needs the message, for interest and work queue streams. No lock is held.
    bint (*need_ack)(ConsumerBase o, uint64_t seq, const char *subject, uint32_t n) noexcept nogil


cdef class ConsumerBase:
    cdef const ConsumerType *type
    cdef uint64_t marked      # a bit for each poller that calls run() at the end of its batch; atomic
    cdef uint64_t ready       # a bit for each poller that calls run() in its next round; atomic
    cdef uint64_t held        # a bit for each poller that calls run() after a sync; atomic
    cdef uint64_t refs        # how often pollers' lists and SyncBatches name it; atomic
    # The filter subjects, NULL: all. ConsumerList.refilter() alone changes it after start(); read it under the
    # consumer's lock or the store's.
    cdef Filter *filter
    cdef Subscription *listed  # its subscriptions in the list's index, linked by `next`; of the list alone


cdef inline bint consumer_stored(ConsumerBase o, uint64_t seq) noexcept nogil:
    return o.type.stored(o, seq)


cdef inline void consumer_run(ConsumerBase o, PollState *ps) noexcept nogil:
    o.type.run(o, ps)


cdef inline void consumer_kick(ConsumerBase o) noexcept nogil:
    o.type.kick(o)


cdef inline bint consumer_count_off(ConsumerBase o, uint64_t seq, const char *subject, uint32_t n) noexcept nogil:
    return o.type.count_off(o, seq, subject, n)


cdef inline void consumer_removed(ConsumerBase o, uint64_t seq) noexcept nogil:
    o.type.removed(o, seq)


cdef inline void consumer_purged(
    ConsumerBase o, uint64_t first, uint64_t last, const char *subject, uint32_t n, uint64_t subject_first
) noexcept nogil:
    o.type.purged(o, first, last, subject, n, subject_first)


cdef inline bint consumer_need_ack(ConsumerBase o, uint64_t seq, const char *subject, uint32_t n) noexcept nogil:
    return o.type.need_ack(o, seq, subject, n)
