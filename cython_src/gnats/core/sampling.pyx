"""Does the header of a request ask for a measurement? See sampling.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t

from gnats.core.parser cimport Slice


cdef inline char lower(char c) noexcept nogil:
    return c + 32 if c'A' <= c <= c'Z' else c


cdef bint find(const char *header, size_t n, const char *key, Slice *value) noexcept nogil:
    """The first value of a key, in lower case, without blanks around it."""
    cdef size_t at = 0, end, k
    while at < n:
        end = at
        while end < n and header[end] != c'\n':
            end += 1
        k = 0
        while at + k < end and key[k] != 0 and lower(header[at + k]) == key[k]:
            k += 1
        if key[k] == 0 and at + k < end and header[at + k] == c':':
            k = at + k + 1
            while k < end and (header[k] == c' ' or header[k] == c'\t'):
                k += 1
            while end > k and (header[end - 1] == c'\r' or header[end - 1] == c' ' or header[end - 1] == c'\t'):
                end -= 1
            value.p = <char *> header + k
            value.n = end - k
            return True
        at = end + 1
    return False


cdef size_t field(const Slice *value, char separator, size_t which, Slice *out) noexcept nogil:
    """A part between separators, empty where there is none; how many parts there are."""
    cdef size_t i, start = 0, count = 0
    out.p = value.p
    out.n = 0
    for i in range(value.n + 1):
        if i == value.n or value.p[i] == separator:
            if count == which:
                out.p = value.p + start
                out.n = i - start
            count += 1
            start = i + 1
    return count


cdef int hex_digit(char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    c = lower(c)
    return c - c'a' + 10 if c'a' <= c <= c'f' else -1


cdef int hex_byte(const Slice *text) noexcept nogil:
    """The value of one or two hexadecimal digits, -1 for anything else."""
    cdef int high = 0, low
    if text.n < 1 or text.n > 2:
        return -1
    if text.n == 2:
        high = hex_digit(text.p[0])
    low = hex_digit(text.p[text.n - 1])
    return -1 if high < 0 or low < 0 else 16 * high + low


cdef inline bint is_char(const Slice *text, char c) noexcept nogil:
    return text.n == 1 and text.p[0] == c


cdef bint sampled_by_header(const char *header, size_t n) noexcept nogil:
    cdef Slice value, part
    cdef size_t count
    cdef int flags
    if find(header, n, b"uber-trace-id", &value):
        flags = hex_byte(&part) if field(&value, c':', 3, &part) == 4 else -1
        return flags >= 0 and flags & 1
    if find(header, n, b"x-b3-sampled", &value):
        if is_char(&value, c'1'):
            return True
        if is_char(&value, c'0'):
            return False
    if find(header, n, b"x-b3-traceid", &value):
        return True
    if find(header, n, b"b3", &value):
        count = field(&value, c'-', 2, &part)
        return not is_char(&part if count > 2 else &value, c'0')
    if find(header, n, b"traceparent", &value):
        if field(&value, c'-', 3, &part) == 4 and part.n == 2:
            flags = hex_byte(&part)
            return 0 <= flags < 128 and flags & 1
    return False


def sampled(bytes header not None) -> bool:
    """Does this header block ask for a measurement?"""
    return sampled_by_header(PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
