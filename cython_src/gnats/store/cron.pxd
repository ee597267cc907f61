"""When schedules are due (cron.go, and parseMsgSchedule of scheduler.go).

A pattern is `@at` with a time, `@every` with a duration of a second or more, six fields as cron has them (second,
minute, hour, day of the month, month, day of the week), or a name for such fields (`@hourly`). Fields are about the
clocks of a time zone: what they do not show when summer time begins is left out, what they show twice when it ends is
due twice.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint64_t

from gnats.store.zones cimport Zone

cdef enum ScheduleKind:
    SCHEDULE_BAD_ZONE = -2
    SCHEDULE_BAD = -1
    SCHEDULE_NONE = 0        # an empty pattern, or the time that Go takes for none
    SCHEDULE_ONCE = 1
    SCHEDULE_REPEATS = 2


cdef struct Due:
    int64_t ts               # ns since 1970
    int32_t offset           # of the schedule's time zone then, seconds east of UTC


# Values are bits; EVERY is that of a `*`.
cdef struct Cron:
    uint64_t second, minute, hour, day, month, weekday


cdef bint parse_cron(const char *p, size_t n, Cron *out) noexcept nogil
# The first time behind `after` (seconds since 1970) that fits. False when there is none in five years.
cdef bint cron_next(const Cron *c, const Zone *z, int64_t after, int64_t *out) noexcept nogil
# The first time of a pattern behind `ts` and, for what repeats, not before now; both in ns since 1970. `zone` NULL: the
# schedule does not name one.
cdef ScheduleKind next_due(
    const char *pattern, size_t n, const char *zone, size_t zone_n, int64_t ts, int64_t now, Due *out) noexcept nogil
