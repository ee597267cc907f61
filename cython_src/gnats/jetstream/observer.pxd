"""What a stream knows of its consumers: the cut between gnats.jetstream.stream and gnats.jetstream.consumer.

The stream calls these, the consumer implements them; so the stream's module need not know the consumer's. Those of a
stream are in its ConsumerList (gnats.jetstream.consumerlist); they stay alive until nobody can be walking it.
"""
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.pollstate cimport PollState
from gnats.core.sublist cimport Subscription
from gnats.store.filter cimport Filter


cdef class Observer:
    cdef uint64_t marked      # by poller, a bit each: run() is due at the end of its batch; atomic, the engine's
    cdef uint64_t held        # the same: when what waits for a sync there is durable
    cdef uint64_t refs        # times a poller is to call run(); atomic, the engine's
    # The subjects that it wants, NULL: all. Only ConsumerList.refilter changes it once there is a list: read under its
    # own lock, or the store's.
    cdef Filter *filter
    cdef Subscription *listed  # its entries in the list's index, linked by `next`; the list's

    # A message has been stored that it wants; the store's lock is held. Counts it as pending; True: run() is to be
    # called at the end of the batch.
    cdef bint stored(self, uint64_t seq) noexcept nogil
    # Deliver what there is to deliver. No lock is held; the thread is online.
    cdef void run(self, PollState *ps) noexcept nogil
    # A message has been removed, by whatever means but purges (decStreamPending). No lock is held.
    cdef void removed(self, uint64_t seq, const char *subject, uint32_t n) noexcept nogil
    # The stream was purged, of `subject` (n == 0: of everything), and goes from `first` to `last` now; `subject_first`
    # is the first that is left of the subject, 0 for none (what that means to a consumer depends on its filters).
    # Also told, with n == 0, when many messages went otherwise. No lock is held.
    cdef void purged(self, uint64_t first, uint64_t last, const char *subject, uint32_t n,
                     uint64_t subject_first) noexcept nogil
    # Is the message still of use to us? For streams that keep messages until they are acknowledged. No lock is held.
    cdef bint need_ack(self, uint64_t seq, const char *subject, uint32_t n) noexcept nogil
