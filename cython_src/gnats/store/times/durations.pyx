"""Numbers and durations; see durations.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.includes.text cimport is_text
from gnats.includes.units cimport SECOND


cdef int64_t parse_int64(const char *p, size_t n) noexcept nogil:
    cdef uint64_t v = 0
    cdef size_t i
    if n == 0:
        return -1
    for i in range(n):
        if not c'0' <= p[i] <= c'9':
            return -1
        v = v * 10 + <uint64_t> (p[i] - c'0')
    return <int64_t> v


cdef bint parse_uint64(const char *p, size_t n, uint64_t *out) noexcept nogil:
    cdef uint64_t v = 0, digit
    cdef uint64_t most = ~<uint64_t> 0
    cdef size_t i
    out[0] = 0
    if n == 0:
        return False
    for i in range(n):
        if not c'0' <= p[i] <= c'9':
            return False
        digit = <uint64_t> (p[i] - c'0')
        if v > most // 10 or (v == most // 10 and digit > most % 10):
            return False
        v = v * 10 + digit
    out[0] = v
    return True


cdef uint64_t unit_of(const char *p, size_t n) noexcept nogil:
    """Return the ns of a unit of time, 0 for an unknown one."""
    if n == 1:
        if p[0] == c's':
            return SECOND
        if p[0] == c'm':
            return 60 * SECOND
        if p[0] == c'h':
            return 3600 * SECOND
    elif n == 2 and p[1] == c's':
        if p[0] == c'n':
            return 1
        if p[0] == c'u':
            return 1000
        if p[0] == c'm':
            return 1000000
    elif is_text(p, n, b"\xc2\xb5s") or is_text(p, n, b"\xce\xbcs"):
        return 1000
    return 0


cdef bint parse_duration(const char *p, size_t n, int64_t *out) noexcept nogil:
    cdef uint64_t top = <uint64_t> 1 << 63
    cdef uint64_t total = 0, whole, part, unit
    cdef double scale
    cdef size_t i = 0, start
    cdef bint negative = False, any_digits, full
    out[0] = 0
    if n and (p[0] == c'-' or p[0] == c'+'):
        negative = p[0] == c'-'
        i = 1
    if n - i == 1 and p[i] == c'0':
        return True
    if i == n:
        return False
    while i < n:
        whole = part = 0
        scale = 1
        full = False
        start = i
        while i < n and c'0' <= p[i] <= c'9':
            if whole > top // 10:
                return False
            whole = whole * 10 + <uint64_t> (p[i] - c'0')
            if whole > top:
                return False
            i += 1
        any_digits = i > start
        if i < n and p[i] == c'.':
            i += 1
            start = i
            while i < n and c'0' <= p[i] <= c'9':
                if not full:
                    if part > (top - 1) // 10 or part * 10 + <uint64_t> (p[i] - c'0') > top:
                        full = True
                    else:
                        part = part * 10 + <uint64_t> (p[i] - c'0')
                        scale *= 10
                i += 1
            any_digits |= i > start
        if not any_digits:
            return False
        start = i
        while i < n and p[i] != c'.' and not c'0' <= p[i] <= c'9':
            i += 1
        unit = unit_of(p + start, i - start)
        if unit == 0 or whole > top // unit:
            return False
        whole *= unit
        if part:
            whole += <uint64_t> (<double> part * (<double> unit / scale))
            if whole > top:
                return False
        total += whole
        if total > top:
            return False
    if negative:
        out[0] = <int64_t> (<uint64_t> 0 - total)
        return True
    if total > top - 1:
        return False
    out[0] = <int64_t> total
    return True


cdef bint parse_message_ttl(const char *p, size_t n, int64_t *out) noexcept nogil:
    cdef int64_t v
    out[0] = 0
    if n == 5 and (p[0] | 32) == c'n' and (p[1] | 32) == c'e' and (p[2] | 32) == c'v' and (p[3] | 32) == c'e' and (
            (p[4] | 32) == c'r'):
        out[0] = -1
        return True
    if parse_duration(p, n, &v):
        if v < SECOND:
            return False
        out[0] = v // SECOND
        return True
    v = parse_int64(p, n)
    if v < 0:
        return False
    out[0] = v
    return True


def probe_ttl(bytes ttl not None) -> int | None:
    """Parse a Nats-TTL: seconds, -1 for never, None when it is invalid."""
    cdef int64_t out
    return out if parse_message_ttl(PyBytes_AS_STRING(ttl), PyBytes_GET_SIZE(ttl), &out) else None


def probe_duration(bytes text not None) -> int | None:
    """Parse a Go duration: ns, None when it is invalid."""
    cdef int64_t out
    return out if parse_duration(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &out) else None
