"""Sums of times and durations, in ns, which saturate instead of wrapping around.

A duration from a client or a configuration may be as long as an int64 says: centuries. INT64_MAX means never (the year
2262 of the clock, centuries after the machine's start). Compute every deadline with these.
"""
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from gnats.includes.units cimport SECOND

cdef extern from *:
    """
    #define GNATS_SUM_OVERFLOWS(a, b, out) __builtin_add_overflow((a), (b), (out))
    #define GNATS_DIFFERENCE_OVERFLOWS(a, b, out) __builtin_sub_overflow((a), (b), (out))
    #define GNATS_PRODUCT_OVERFLOWS(a, b, out) __builtin_mul_overflow((a), (b), (out))
    """
    bint GNATS_SUM_OVERFLOWS(int64_t a, int64_t b, int64_t *out) nogil
    bint GNATS_DIFFERENCE_OVERFLOWS(int64_t a, int64_t b, int64_t *out) nogil
    bint GNATS_PRODUCT_OVERFLOWS(int64_t a, int64_t b, int64_t *out) nogil


cdef inline int64_t time_after(int64_t t, int64_t d) noexcept nogil:
    """Return t + d."""
    cdef int64_t sum
    if GNATS_SUM_OVERFLOWS(t, d, &sum):
        return INT64_MAX if d > 0 else INT64_MIN
    return sum


cdef inline int64_t time_before(int64_t t, int64_t d) noexcept nogil:
    """Return t - d: the time d before t, or the duration from d to t."""
    cdef int64_t difference
    if GNATS_DIFFERENCE_OVERFLOWS(t, d, &difference):
        return INT64_MIN if d > 0 else INT64_MAX
    return difference


cdef inline int64_t whole_seconds(int64_t secs) noexcept nogil:
    """Return whole seconds in ns."""
    cdef int64_t ns
    if GNATS_PRODUCT_OVERFLOWS(secs, SECOND, &ns):
        return INT64_MAX if secs > 0 else INT64_MIN
    return ns


cdef inline int64_t times(int64_t d, int64_t n) noexcept nogil:
    """Return n times the duration d; neither is negative."""
    cdef int64_t product
    return INT64_MAX if GNATS_PRODUCT_OVERFLOWS(d, n, &product) else product


cdef inline int64_t duration_of(double secs) noexcept nogil:
    """Return seconds in ns; 0 for NaN."""
    if secs >= 9223372036.0:
        return INT64_MAX
    if secs <= -9223372036.0:
        return INT64_MIN
    return <int64_t> (secs * SECOND) if secs == secs else 0
