"""Days, dates and times of day; see calendar.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdio cimport snprintf

from gnats.includes.units cimport SECOND


cdef int32_t[12] MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


cdef int32_t days_in(int64_t year, int32_t month) noexcept nogil:
    return MONTH_DAYS[month - 1] + (month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))


cdef int64_t days_of(int64_t year, int64_t month, int64_t day) noexcept nogil:
    cdef int64_t carried = floor_div(month - 1, 12)
    cdef int64_t era, yoe, doy
    year += carried
    month -= carried * 12
    if month <= 2:
        year -= 1
    era = floor_div(year, 400)
    yoe = year - era * 400
    doy = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468 + day - 1


cdef void civil_of(int64_t secs, Civil *out) noexcept nogil:
    cdef int64_t days = floor_div(secs, DAY)
    cdef int32_t rest = <int32_t> (secs - days * DAY)
    cdef int64_t era
    cdef uint32_t doe, yoe, doy, mp
    out.weekday = <int32_t> (days + 4 - floor_div(days + 4, 7) * 7)
    out.hour = rest // 3600
    out.minute = rest // 60 % 60
    out.second = rest % 60
    days += 719468
    era = floor_div(days, 146097)
    doe = <uint32_t> (days - era * 146097)
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    out.day = <int32_t> (doy - (153 * mp + 2) // 5 + 1)
    out.month = <int32_t> (mp + 3 if mp < 10 else mp - 9)
    out.year = <int64_t> yoe + era * 400 + (1 if out.month <= 2 else 0)


cdef size_t put_time_at(char *out, int64_t ns, int32_t offset) noexcept nogil:
    cdef int64_t secs = floor_div(ns, SECOND)
    cdef int64_t rest = ns - secs * SECOND
    cdef int32_t zone = offset // 60
    cdef Civil c
    cdef size_t n
    civil_of(secs + offset, &c)
    n = snprintf(
        out, 35, b"%04d-%02u-%02uT%02u:%02u:%02u", <int> c.year, c.month, c.day, c.hour, c.minute, c.second)
    if rest:
        n += snprintf(out + n, 12, b".%09lld", <long long> rest)
        while out[n - 1] == c'0':
            n -= 1
    if zone == 0:
        out[n] = c'Z'
        return n + 1
    out[n] = c'-' if zone < 0 else c'+'
    zone = -zone if zone < 0 else zone
    return n + 1 + snprintf(out + n + 1, 7, b"%02u:%02u", zone // 60 % 100, zone % 60)


cdef inline bint is_digit(const char *p, size_t n, size_t at) noexcept nogil:
    return at < n and c'0' <= p[at] <= c'9'


cdef inline int32_t two_digits(const char *p, size_t n, size_t at) noexcept nogil:
    """Parse two digits; -1 when they are not digits."""
    if not is_digit(p, n, at) or not is_digit(p, n, at + 1):
        return -1
    return (p[at] - c'0') * 10 + p[at + 1] - c'0'


cdef inline bint is_char(const char *p, size_t n, size_t at, char wanted) noexcept nogil:
    return at < n and p[at] == wanted


cdef bint parse_zone(const char *p, size_t n, size_t at, int64_t *secs) noexcept nogil:
    cdef int32_t hour, minute
    if is_char(p, n, at, c'Z'):
        return at + 1 == n
    if n != at + 6 or p[at + 3] != c':' or (p[at] != c'+' and p[at] != c'-'):
        return False
    hour = two_digits(p, n, at + 1)
    minute = two_digits(p, n, at + 4)
    # Go accepts offsets of 24 hours and of 60 minutes.
    if not 0 <= hour <= 24 or not 0 <= minute <= 60:
        return False
    secs[0] -= (hour * 3600 + minute * 60) * (1 if p[at] == c'+' else -1)
    return True


cdef bint parse_rfc3339(const char *p, size_t n, int64_t *secs, int64_t *nanos) noexcept nogil:
    cdef int32_t year, month, day, hour, minute, second, century
    cdef int64_t scale = 100000000
    cdef size_t at = 11
    century = two_digits(p, n, 0)
    year = two_digits(p, n, 2)
    month = two_digits(p, n, 5)
    day = two_digits(p, n, 8)
    if century < 0 or year < 0 or not 1 <= month <= 12 or day < 1:
        return False
    year += century * 100
    if p[4] != c'-' or p[7] != c'-' or day > days_in(year, month) or not is_char(p, n, 10, c'T'):
        return False
    hour = two_digits(p, n, at)
    if hour >= 0:
        at += 2
    elif is_digit(p, n, at):
        hour = p[at] - c'0'     # the hour may have one digit
        at += 1
    minute = two_digits(p, n, at + 1)
    second = two_digits(p, n, at + 4)
    if not 0 <= hour < 24 or not 0 <= minute < 60 or not 0 <= second < 60 or p[at] != c':' or p[at + 3] != c':':
        return False
    at += 6
    secs[0] = days_of(year, month, day) * DAY + hour * 3600 + minute * 60 + second
    nanos[0] = 0
    if at < n and (p[at] == c'.' or p[at] == c',') and is_digit(p, n, at + 1):
        at += 1
        while is_digit(p, n, at):
            nanos[0] += (p[at] - c'0') * scale
            scale //= 10
            at += 1
    return parse_zone(p, n, at, secs)


def probe_rfc3339(bytes text not None) -> tuple[int, int] | None:
    """Parse RFC 3339: (seconds since 1970, nanoseconds), None when it is malformed (for tests)."""
    cdef int64_t secs, nanos
    if not parse_rfc3339(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &secs, &nanos):
        return None
    return secs, nanos


def probe_time_at(int64_t ns, int offset) -> bytes:
    """Format ns since 1970 as RFC 3339, `offset` seconds east of UTC (for tests)."""
    cdef char[TIME_ROOM] out
    cdef size_t n = put_time_at(out, ns, offset)
    return out[:n]
