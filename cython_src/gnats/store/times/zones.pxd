"""Time zones: the files of the system's time zone database (TZif, RFC 8536), and the local time in a zone.

A zone is read for each use and not cached: its file is in the page cache, and an update of the database takes effect
while the server runs. The names of zones, and the rules for times after the last transition in a file, are those
of Go's time.LoadLocation.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t


# When summer time begins or ends, from a POSIX TZ rule.
cdef struct ZoneRule:
    int32_t kind         # a RuleKind
    int32_t day          # of the year, or the weekday
    int32_t week, month
    int32_t time         # seconds of that day, in the local time before the change


cdef struct Zone:
    uint8_t *data        # the content of the file; NULL: UTC
    const uint8_t *when  # times of the transitions, big-endian, `width` bytes each
    const uint8_t *kind  # the type of each, an index into `types`
    const uint8_t *types   # 6 bytes each: offset, whether it is summer time, name
    size_t n             # transitions
    int32_t n_types
    uint8_t width        # bytes of a transition's time: 8, or 4 in old files
    # after the last transition
    uint8_t has_rules    # 0: the last type stays; 1: standard time only; 2: standard and summer time
    int32_t standard, summer           # seconds east of UTC
    ZoneRule begins, ends              # of summer time


# The offset of a zone at some time, and from when until when it is valid (seconds since 1970).
cdef struct ZoneTime:
    int32_t offset       # seconds east of UTC
    int64_t start, end


# Read a zone; zone_free() follows. False: there is no zone of that name, or its file is invalid.
cdef bint zone_open(Zone *z, const char *name, size_t n) noexcept nogil
cdef void zone_free(Zone *z) noexcept nogil
# Get the offset at a time (seconds since 1970). z NULL: UTC.
cdef void zone_at(const Zone *z, int64_t secs, ZoneTime *out) noexcept nogil
# Convert a local time to seconds since 1970; `shown` is the local time counted like UTC. For a time that comes twice,
# or not at all, the result is right for one side of the change, as in Go's time.Date.
cdef int64_t zone_seconds(const Zone *z, int64_t shown) noexcept nogil
