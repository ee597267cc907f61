"""Latencies in logarithmic buckets. See histogram.pyx."""
from libc.stdint cimport int64_t, uint64_t

cdef enum:
    SUB_BITS = 6                                  # 64 buckets to each power of two
    SUB_COUNT = 1 << SUB_BITS
    MAX_BITS = 40                                 # up to 18 minutes
    BUCKETS = (MAX_BITS - SUB_BITS + 1) << SUB_BITS


cdef class Histogram:
    cdef uint64_t counts[BUCKETS]
    cdef readonly uint64_t count
    cdef uint64_t total_ns
    cdef uint64_t least, most
    cdef void add_ns(self, int64_t ns) noexcept nogil
