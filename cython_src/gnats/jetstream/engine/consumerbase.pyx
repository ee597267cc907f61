"""The part of a consumer that its stream uses; see consumerbase.pxd."""
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollState


cdef class ConsumerBase:
    """A consumer, as its stream sees it; see gnats.jetstream.consumer.consumer.Consumer."""

    cdef bint stored(self, uint64_t seq) noexcept nogil:
        return False

    cdef void run(self, PollState *ps) noexcept nogil:
        pass

    cdef void kick(self) noexcept nogil:
        pass

    cdef void removed(self, uint64_t seq, const char *subject, uint32_t n) noexcept nogil:
        pass

    cdef void purged(
        self, uint64_t first, uint64_t last, const char *subject, uint32_t n, uint64_t subject_first
    ) noexcept nogil:
        pass

    cdef bint need_ack(self, uint64_t seq, const char *subject, uint32_t n) noexcept nogil:
        return False
