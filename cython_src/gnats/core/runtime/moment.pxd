"""Moments: monotonic time in coarse steps, small enough to note it in every subscription."""
from libc.stdint cimport int32_t, int64_t, uint32_t

cdef enum:
    MOMENT_BITS = 27    # a moment is 2**27 ns, 134 ms
    RECENT = 15         # moments, a little more than 2 s


cdef inline uint32_t moment_of(int64_t now) noexcept nogil:
    """Return the moment of a monotonic time. It wraps after years."""
    return <uint32_t> (now >> MOMENT_BITS)


cdef inline bint is_recent(uint32_t came, int64_t now) noexcept nogil:
    """Return whether a moment is at most RECENT ago, or to come: other pollers' clocks may be ahead."""
    return <int32_t> (moment_of(now) - came) <= RECENT
