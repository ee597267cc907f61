"""Note which messages a consumer's stream has removed, and find out which it may remove (consumer.go).

These are functions of the consumer's ConsumerType; see there.
"""
from libc.stdint cimport uint32_t, uint64_t

from gnats.jetstream.engine.consumerbase cimport ConsumerBase


cdef bint on_count_off(ConsumerBase base, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil
cdef void on_removed(ConsumerBase base, uint64_t sseq) noexcept nogil
cdef void on_purged(ConsumerBase base, uint64_t first, uint64_t last, const char *subject, uint32_t n,
                    uint64_t subject_first) noexcept nogil
cdef bint on_need_ack(ConsumerBase base, uint64_t sseq, const char *subject, uint32_t n) noexcept nogil
