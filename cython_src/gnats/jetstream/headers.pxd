"""What streams read in headers, and the numbers and times in them; lines are found as core.headers does."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.slice cimport Slice


cdef enum:
    H_MSG_ID = 0
    H_EXPECTED_STREAM = 1
    H_EXPECTED_LAST_SEQ = 2
    H_EXPECTED_LAST_SUBJ_SEQ = 3
    H_EXPECTED_LAST_SUBJ_SEQ_SUBJ = 4
    H_EXPECTED_LAST_MSG_ID = 5
    H_STREAM_SOURCE = 6
    H_ROLLUP = 7
    H_TTL = 8
    H_INCR = 9
    H_COUNTER_SOURCES = 10
    H_BATCH_ID = 11
    H_BATCH_SEQ = 12
    H_BATCH_COMMIT = 13
    H_SCHEDULE = 14
    H_SCHEDULE_TIME_ZONE = 15
    H_SCHEDULE_TTL = 16
    H_SCHEDULE_ROLLUP = 17
    H_SCHEDULE_TARGET = 18
    H_SCHEDULE_SOURCE = 19
    H_SCHEDULER = 20
    H_SCHEDULE_NEXT = 21
    H_REQUEST_INFO = 22
    H_REQUIRED_API_LEVEL = 23
    H_MARKER_REASON = 24
    HEADERS = 25


cdef struct MsgHeaders:
    uint32_t found             # a bit for each H_*
    Slice values[HEADERS]      # of those only


cdef void parse_headers(char *hdr, size_t n, MsgHeaders *out) noexcept nogil


cdef inline bint has_header(const MsgHeaders *h, int which) noexcept nogil:
    return h.found >> which & 1


cdef inline bint header_set(const MsgHeaders *h, int which) noexcept nogil:
    """It is there, and not empty."""
    return h.found >> which & 1 and h.values[which].n


# add_header() with a number.
cdef size_t add_number_header(char *out, const char *hdr, size_t n, const char *name, size_t name_n,
                              uint64_t value) noexcept nogil

# Write in decimal; the number of characters, 20 at most.
cdef size_t put_uint64(char *out, uint64_t value) noexcept nogil
# ns since 1970 as time.RFC3339Nano in UTC, 35 bytes at most.
cdef size_t put_time(char *out, int64_t ns) noexcept nogil
# RFC 3339 as time.Time reads it from JSON, in ns since 1970.
cdef bint parse_time(const char *p, size_t n, int64_t *out) noexcept nogil
# Does the header ask for an API level that this server does not have (errorOnRequiredApiLevel)?
cdef bint level_too_high(char *hdr, size_t n) noexcept nogil
