"""Days, dates and times of day in the Gregorian calendar, and RFC 3339 times.

Seconds, nanoseconds and days count from 1970-01-01 UTC. The algorithms are Howard Hinnant's days_from_civil and
civil_from_days.
"""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t

from gnats.includes.units cimport SECOND

cdef enum:
    DAY = 86400
    TIME_ROOM = 40       # most bytes that put_time_at() writes


cdef struct Civil:
    int64_t year
    int32_t month, day                # from 1
    int32_t hour, minute, second
    int32_t weekday                   # 0 is Sunday


cdef inline int64_t floor_div(int64_t a, int64_t b) noexcept nogil:
    """Divide and round down; b is positive."""
    return a // b - (a % b < 0)


cdef inline int64_t ns_of(int64_t secs, int64_t nanos) noexcept nogil:
    """Return secs seconds and nanos ns (less than a second) in ns; INT64_MIN or INT64_MAX if that is out of range."""
    if secs > INT64_MAX // SECOND - 1:
        return INT64_MAX
    if secs < INT64_MIN // SECOND + 1:
        return INT64_MIN
    return secs * SECOND + nanos


# Return the day of a date. A month outside 1 to 12 counts into another year, a day outside its month into another
# month.
cdef int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept nogil
cdef int32_t days_in(int64_t year, int32_t month) noexcept nogil
cdef void civil_of(int64_t secs, Civil *out) noexcept nogil
# Write a time as Go's time.RFC3339Nano, in a zone `offset` seconds east of UTC. Return the size, TIME_ROOM at most.
cdef size_t put_time_at(char *out, int64_t ns, int32_t offset) noexcept nogil
# Parse RFC 3339 as Go's time.Parse does, which is less strict than the RFC. False: not a time.
cdef bint parse_rfc3339(const char *p, size_t n, int64_t *secs, int64_t *nanos) noexcept nogil
