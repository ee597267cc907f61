"""Schedule patterns, and when they are due (cron.go, and parseMsgSchedule of scheduler.go).

A pattern is `@at` with a time, `@every` with a duration of at least a second, six cron fields (second, minute, hour,
day of the month, month, day of the week), or a name for such fields (`@hourly`). Fields are local times of a time
zone: a time that summer time skips is not due, a time that comes twice when summer time ends is due twice.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint64_t

from gnats.store.times.zones cimport Zone

cdef enum ScheduleKind:
    SCHEDULE_BAD_ZONE = -2
    SCHEDULE_BAD = -1
    SCHEDULE_NONE = 0        # an empty pattern, or Go's zero time
    SCHEDULE_ONCE = 1
    SCHEDULE_REPEATS = 2


cdef struct Due:
    int64_t ts               # ns since 1970
    int32_t offset           # of the schedule's time zone at that time, seconds east of UTC


# The values of each field as a set of bits; the bit EVERY marks a `*`.
cdef struct Cron:
    uint64_t second, minute, hour, day, month, weekday


# Parse six fields. False: they are invalid.
cdef bint parse_cron(const char *p, size_t n, Cron *out) noexcept nogil
# Get the first time after `after` that the fields match; both in seconds since 1970. False: there is none in five
# years.
cdef bint cron_next(const Cron *c, const Zone *z, int64_t after, int64_t *out) noexcept nogil
# Get the first time of a pattern after `ts`, and for a repeating one not before `now`; both in ns since 1970. `zone`
# NULL: the schedule names no time zone.
cdef ScheduleKind next_due(
    const char *pattern, size_t n, const char *zone, size_t zone_n, int64_t ts, int64_t now, Due *out) noexcept nogil
