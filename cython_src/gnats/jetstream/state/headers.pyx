"""Headers of messages for streams; see headers.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, strlen

from gnats.core.messages.headers cimport LINE_END, header_line_end, header_value_at, named_header
from gnats.core.runtime.quoting cimport put_json_string
from gnats.includes.text cimport goes_on_from_text
from gnats.includes.units cimport SECOND
from gnats.store.times.calendar cimport days_of, put_time_at
from gnats.store.times.durations cimport parse_int64, parse_uint64

from gnats.version import JS_API_LEVEL

cdef extern from *:
    """
    #define GNATS_NAME_PREFIX "Nats-"
    #define GNATS_NAME(s) {s, sizeof(s) - 1}
    typedef struct { const char *p; size_t n; } gnats_header_name;
    static const gnats_header_name gnats_header_names[] = {
        GNATS_NAME("Nats-Msg-Id"), GNATS_NAME("Nats-Expected-Stream"), GNATS_NAME("Nats-Expected-Last-Sequence"),
        GNATS_NAME("Nats-Expected-Last-Subject-Sequence"),
        GNATS_NAME("Nats-Expected-Last-Subject-Sequence-Subject"), GNATS_NAME("Nats-Expected-Last-Msg-Id"),
        GNATS_NAME("Nats-Stream-Source"), GNATS_NAME("Nats-Rollup"), GNATS_NAME("Nats-TTL"),
        GNATS_NAME("Nats-Incr"), GNATS_NAME("Nats-Counter-Sources"), GNATS_NAME("Nats-Batch-Id"),
        GNATS_NAME("Nats-Batch-Sequence"), GNATS_NAME("Nats-Batch-Commit"), GNATS_NAME("Nats-Schedule"),
        GNATS_NAME("Nats-Schedule-Time-Zone"), GNATS_NAME("Nats-Schedule-TTL"), GNATS_NAME("Nats-Schedule-Rollup"),
        GNATS_NAME("Nats-Schedule-Target"), GNATS_NAME("Nats-Schedule-Source"), GNATS_NAME("Nats-Scheduler"),
        GNATS_NAME("Nats-Schedule-Next"), GNATS_NAME("Nats-Request-Info"), GNATS_NAME("Nats-Required-Api-Level"),
        GNATS_NAME("Nats-Marker-Reason"),
    };
    """
    ctypedef struct gnats_header_name:
        const char *p
        size_t n
    const gnats_header_name gnats_header_names[]
    const char *NAME_PREFIX "GNATS_NAME_PREFIX"    # of each of these names

cdef int64_t api_level = JS_API_LEVEL


cdef void parse_headers(char *hdr, size_t n, MsgHeaders *out) noexcept nogil:
    cdef size_t at = header_line_end(hdr, n, 0), end, name_n
    cdef const char *colon
    cdef int i
    out.found = 0
    while at + LINE_END < n:
        at += LINE_END
        end = header_line_end(hdr, n, at)
        if goes_on_from_text(hdr + at, end - at, NAME_PREFIX):
            colon = <const char *> memchr(hdr + at, c':', end - at)
            if colon != NULL:
                name_n = colon - (hdr + at)
                for i in range(HEADERS):
                    if gnats_header_names[i].n == name_n and memcmp(
                            gnats_header_names[i].p + strlen(NAME_PREFIX), hdr + at + strlen(NAME_PREFIX),
                            name_n - strlen(NAME_PREFIX)) == 0:
                        if not out.found >> i & 1:
                            out.found |= <uint32_t> 1 << i
                            out.values[i] = header_value_at(hdr, at + name_n + 1, end)
                        break
        at = end


# -- numbers and times -----------------------------------------------------------------------------------------------

cdef size_t put_uint64(char *out, uint64_t value) noexcept nogil:
    cdef char[20] digits
    cdef size_t at = 20
    while True:
        at -= 1
        digits[at] = <char> (c'0' + <char> (value % 10))
        value //= 10
        if value == 0:
            break
    memcpy(out, digits + at, 20 - at)
    return 20 - at


cdef size_t put_time(char *out, int64_t ns) noexcept nogil:
    return put_time_at(out, ns, 0)


cdef bint parse_time(const char *p, size_t n, int64_t *out) noexcept nogil:
    cdef int64_t year, month, day, hour, minute, second, zone_hour, zone_minute
    cdef int64_t frac = 0, scale = 100000000, secs, most
    cdef size_t i = 19
    if n < 20 or p[4] != c'-' or p[7] != c'-' or p[10] != c'T' or p[13] != c':' or p[16] != c':':
        return False
    year = parse_int64(p, 4)
    month = parse_int64(p + 5, 2)
    day = parse_int64(p + 8, 2)
    hour = parse_int64(p + 11, 2)
    minute = parse_int64(p + 14, 2)
    second = parse_int64(p + 17, 2)
    if year < 0 or not 1 <= month <= 12 or not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60:
        return False
    most = 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
    if month == 2:
        most = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if not 1 <= day <= most:
        return False
    if p[i] == c'.':
        i += 1
        if i == n or not c'0' <= p[i] <= c'9':
            return False
        while i < n and c'0' <= p[i] <= c'9':
            frac += (p[i] - c'0') * scale
            scale //= 10
            i += 1
    secs = days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second
    if i == n:
        return False
    if p[i] == c'Z':
        if i + 1 != n:
            return False
    else:
        if n - i != 6 or (p[i] != c'+' and p[i] != c'-') or p[i + 3] != c':':
            return False
        zone_hour = parse_int64(p + i + 1, 2)
        zone_minute = parse_int64(p + i + 4, 2)
        if not 0 <= zone_hour < 24 or not 0 <= zone_minute < 60:
            return False
        secs -= (zone_hour * 3600 + zone_minute * 60) * (1 if p[i] == c'+' else -1)
    # Clamp to the range of int64 ns.
    if secs > <int64_t> 9223372035:
        out[0] = <int64_t> 9223372035 * SECOND
    elif secs < -<int64_t> 9223372035:
        out[0] = -<int64_t> 9223372035 * SECOND
    else:
        out[0] = secs * SECOND + frac
    return True


cdef bint level_too_high(char *hdr, size_t n) noexcept nogil:
    # Parse as strconv.Atoi does: an optional sign, then digits, in 64 bits.
    cdef Slice level = named_header(hdr, n, b"Nats-Required-Api-Level")
    cdef uint64_t v
    cdef bint negative
    if level.p == NULL or level.n == 0:
        return False
    negative = level.p[0] == c'-'
    if negative or level.p[0] == c'+':
        level.p += 1
        level.n -= 1
    if not parse_uint64(level.p, level.n, &v):
        return True
    if negative:
        return v > <uint64_t> 1 << 63
    return v > <uint64_t> api_level


def required_level(bytes header not None) -> bool:
    """Whether this server has the API level that a request's header requires (errorOnRequiredApiLevel)."""
    return not level_too_high(PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))


# -- for tests -------------------------------------------------------------------------------------------------------

def probe_headers(bytes hdr not None) -> dict:
    """Return the values of the known lines of a header, by number (H_*)."""
    cdef MsgHeaders h
    cdef dict out = {}
    cdef int i
    parse_headers(PyBytes_AS_STRING(hdr), PyBytes_GET_SIZE(hdr), &h)
    for i in range(HEADERS):
        if has_header(&h, i):
            out[i] = PyBytes_FromStringAndSize(h.values[i].p, h.values[i].n)
    return out


def header_names() -> list:
    """Return the names of the known lines, in the order of their numbers."""
    return [gnats_header_names[i].p[:gnats_header_names[i].n] for i in range(HEADERS)]


def probe_json_string(bytes text not None) -> bytes:
    """Quote any bytes as a JSON string, as encoding/json does."""
    cdef char *out = <char *> malloc(6 * PyBytes_GET_SIZE(text) + 2)
    if out == NULL:
        raise MemoryError
    try:
        return PyBytes_FromStringAndSize(
            out, put_json_string(out, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)))
    finally:
        free(out)


def probe_parse_time(bytes text not None) -> int | None:
    """Parse RFC 3339; return ns since 1970, None when it is malformed."""
    cdef int64_t out
    return out if parse_time(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &out) else None


def probe_time(int64_t ns) -> bytes:
    """Format ns since 1970 as RFC 3339, with as many decimals as needed."""
    cdef char[40] out
    return PyBytes_FromStringAndSize(out, put_time(out, ns))
