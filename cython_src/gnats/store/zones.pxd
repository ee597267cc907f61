"""Time zones: the files of the system's time zone database (TZif, RFC 8536), and what is the time in them.

A zone is read when it is asked for and not kept: its file is in the page cache, and what the database says of it may
change while the server runs. Names are those that Go's time.LoadLocation takes; so is what a zone says of times behind
the last transition that its file lists.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t


# When a half of the year begins in a POSIX TZ rule.
cdef struct ZoneRule:
    int32_t kind         # a RuleKind
    int32_t day          # of the year, or the weekday
    int32_t week, month
    int32_t time         # seconds of that day, in the time before


cdef struct Zone:
    uint8_t *data        # the file's; NULL for UTC
    const uint8_t *when  # transitions: big-endian, 8 (or 4) bytes each
    const uint8_t *kind  # and the type of each, an index of `types`
    const uint8_t *types   # 6 bytes each: offset, is it summer time, name
    size_t n             # how many transitions
    int32_t n_types
    uint8_t width        # bytes of a transition: 8, or 4 in old files
    # behind the last transition
    uint8_t has_rules    # 0: as it was; 1: standard time only; 2: with summer time
    int32_t standard, summer           # seconds east of UTC
    ZoneRule begins, ends              # of summer time


# What holds at a time, and between which times.
cdef struct ZoneTime:
    int32_t offset       # seconds east of UTC
    int64_t start, end


# False: there is no zone of that name, or its file is not understood. zone_free() it else.
cdef bint zone_open(Zone *z, const char *name, size_t n) noexcept nogil
cdef void zone_free(Zone *z) noexcept nogil
# z NULL: UTC
cdef void zone_at(const Zone *z, int64_t secs, ZoneTime *out) noexcept nogil
# Seconds since 1970 when clocks there show a date and a time, in seconds since 1970 as if it were UTC. Of a time that
# is there twice, or not at all, one that is right on one side of the change (time.Date).
cdef int64_t zone_seconds(const Zone *z, int64_t shown) noexcept nogil
