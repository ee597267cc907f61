"""The header lines that streams read and write, with their numbers and times. core.messages.headers finds the lines."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from libc.string cimport strlen

from gnats.core.messages.headers cimport (
    add_header,
    has_header_like,
    remove_header,
    remove_headers_like,
    set_header,
)
from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport is_text
from gnats.jetstream.state.entry cimport NO_ROLLUP, ROLLUP_ALL, ROLLUP_SUBJECT, Rollup


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
    uint32_t found             # a bit for each H_* that the header has
    Slice values[HEADERS]      # valid only where the bit is set


cdef void parse_headers(char *hdr, size_t n, MsgHeaders *out) noexcept nogil


cdef inline bint has_header(const MsgHeaders *h, int which) noexcept nogil:
    return h.found >> which & 1


cdef inline bint header_set(const MsgHeaders *h, int which) noexcept nogil:
    """Return whether the header has the line, with a value that is not empty."""
    return h.found >> which & 1 and h.values[which].n


# -- core.messages.headers' functions, for a literal name --

cdef inline bint is_named_like(const char *hdr, size_t n, const char *prefix) noexcept nogil:
    """Return whether the header has a line that begins with `prefix`."""
    return has_header_like(hdr, n, prefix, strlen(prefix))


cdef inline size_t with_header(
    char *out, const char *hdr, size_t n, const char *name, const char *value, size_t value_n
) noexcept nogil:
    return add_header(out, hdr, n, name, strlen(name), value, value_n)


cdef inline size_t with_text_header(
    char *out, const char *hdr, size_t n, const char *name, const char *value
) noexcept nogil:
    """Add a line whose `value` is a literal, as add_header(). Return the new size."""
    return add_header(out, hdr, n, name, strlen(name), value, strlen(value))


cdef inline size_t with_number_header(
    char *out, const char *hdr, size_t n, const char *name, uint64_t value
) noexcept nogil:
    cdef char[20] digits
    return add_header(out, hdr, n, name, strlen(name), digits, put_uint64(digits, value))


cdef inline size_t with_set_header(
    char *hdr, size_t n, const char *name, const char *value, size_t value_n
) noexcept nogil:
    """Replace the first line of that name in place, or add one. Return the new size."""
    return set_header(hdr, n, name, strlen(name), value, value_n)


cdef inline size_t without_header(char *hdr, size_t n, const char *name) noexcept nogil:
    return remove_header(hdr, n, name, strlen(name))


cdef inline size_t without_headers_like(char *hdr, size_t n, const char *prefix) noexcept nogil:
    return remove_headers_like(hdr, n, prefix, strlen(prefix))


cdef inline Rollup rollup_of(const Slice *v) noexcept nogil:
    cdef char[3] low
    cdef size_t i
    if v.n != sizeof(low):
        return NO_ROLLUP
    for i in range(sizeof(low)):
        low[i] = v.p[i] + 32 if c'A' <= v.p[i] <= c'Z' else v.p[i]
    if is_text(low, sizeof(low), b"sub"):
        return ROLLUP_SUBJECT
    return ROLLUP_ALL if is_text(low, sizeof(low), b"all") else NO_ROLLUP


cdef inline Slice schedule_ended(const MsgHeaders *h) noexcept nogil:
    """Return the subject of the schedule that the message ends; n is 0 when it ends none."""
    cdef Slice none
    if header_set(h, H_SCHEDULER) and has_header(h, H_SCHEDULE_NEXT) and is_text(
            h.values[H_SCHEDULE_NEXT].p, h.values[H_SCHEDULE_NEXT].n, b"purge"):
        return h.values[H_SCHEDULER]
    none.p = NULL
    none.n = 0
    return none


# Write a number in decimal. Return the number of characters, 20 at most.
cdef size_t put_uint64(char *out, uint64_t value) noexcept nogil
# Write ns since 1970 as time.RFC3339Nano in UTC. Return the number of bytes, 35 at most.
cdef size_t put_time(char *out, int64_t ns) noexcept nogil
# Parse RFC 3339 as time.Time does from JSON; out[0]: ns since 1970. False when it is invalid.
cdef bint parse_time(const char *p, size_t n, int64_t *out) noexcept nogil
# Return whether the header requires an API level that this server does not have (errorOnRequiredApiLevel).
cdef bint level_too_high(char *hdr, size_t n) noexcept nogil
