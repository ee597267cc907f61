"""Days, dates and times of day in the Gregorian calendar, and times as RFC 3339 writes them.

Seconds and nanoseconds are since 1970, in UTC. Days are Howard Hinnant's days_from_civil and civil_from_days.
"""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t

cdef enum:
    DAY = 86400
    TIME_ROOM = 40       # bytes that a time may take as text


cdef struct Civil:
    int64_t year
    int32_t month, day                # from 1
    int32_t hour, minute, second
    int32_t weekday                   # 0 is Sunday


cdef inline int64_t floor_div(int64_t a, int64_t b) noexcept nogil:
    """Rounded down; b is positive."""
    return a // b - (a % b < 0)


cdef inline int64_t ns_of(int64_t secs, int64_t nanos) noexcept nogil:
    """secs seconds and nanos (less than one) as ns; as early or as late as those can say if they cannot."""
    if secs > INT64_MAX // 1000000000 - 1:
        return INT64_MAX
    if secs < INT64_MIN // 1000000000 + 1:
        return INT64_MIN
    return secs * 1000000000 + nanos


# Since 1970-01-01. A month beyond its year is one of another year, a day beyond its month one of another month.
cdef int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept nogil
cdef int32_t days_in(int64_t year, int32_t month) noexcept nogil
cdef void civil_of(int64_t secs, Civil *out) noexcept nogil
# As time.RFC3339Nano, in a zone that is `offset` seconds east of UTC; the bytes, TIME_ROOM at most.
cdef size_t put_time_at(char *out, int64_t ns, int32_t offset) noexcept nogil
# RFC 3339 as Go's time.Parse takes it, which is less strict than the RFC. False for what is none.
cdef bint parse_rfc3339(const char *p, size_t n, int64_t *secs, int64_t *nanos) noexcept nogil
