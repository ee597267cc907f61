"""Decide whether a request's header asks for a measurement; see sampling.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memchr, strchr

from gnats.core.runtime.slice cimport Slice


cdef inline char lower(char c) noexcept nogil:
    return c + 32 if c'A' <= c <= c'Z' else c


cdef enum Read:
    READ_FIELD
    READ_END
    READ_MALFORMED    # the whole block is ignored


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef inline bint in_key(uint8_t c) noexcept nogil:
    return (
        c'a' <= (c | 32) <= c'z' or c'0' <= c <= c'9' or c == c' '
        or (c != 0 and strchr(b"!#$%&'*+-.^_`|~", c) != NULL))


cdef inline bint in_value(uint8_t c) noexcept nogil:
    return c == c'\t' or (c >= 32 and c != 127)


cdef Read next_field(const char *header, size_t n, size_t *at, Slice *key, Slice *value) noexcept nogil:
    """Read the field at `at`, and move `at` behind it, as net/textproto reads fields.

    A LF ends a line, with or without a CR before it. The first line is no field, an empty one is the last. Continuation
    lines are skipped.
    """
    cdef const char *lf
    cdef const char *colon
    cdef size_t i, end
    cdef bint first = at[0] == 0
    if first:
        lf = <const char *> memchr(header, c'\n', n)
        if lf == NULL:
            return READ_MALFORMED
        at[0] = lf + 1 - header
    while True:
        i = at[0]
        lf = <const char *> memchr(header + i, c'\n', n - i)
        if lf == NULL:
            return READ_MALFORMED
        end = lf - header
        at[0] = end + 1
        if end > i and header[end - 1] == c'\r':
            end -= 1
        if end == i:
            return READ_END
        if not is_blank(header[i]):
            break
        if first:
            return READ_MALFORMED
    colon = <const char *> memchr(header + i, c':', end - i)
    if colon == NULL or colon == header + i:
        return READ_MALFORMED
    key.p = <char *> header + i
    key.n = colon - key.p
    for i in range(key.n):
        if not in_key(<uint8_t> key.p[i]):
            return READ_MALFORMED
    i = colon + 1 - header
    while i < end and is_blank(header[i]):
        i += 1
    while end > i and is_blank(header[end - 1]):
        end -= 1
    value.p = <char *> header + i
    value.n = end - i
    for i in range(value.n):
        if not in_value(<uint8_t> value.p[i]):
            return READ_MALFORMED
    return READ_FIELD


cdef bint well_formed(const char *header, size_t n) noexcept nogil:
    cdef Slice key, value
    cdef size_t at = 0
    cdef Read r = READ_FIELD
    while r == READ_FIELD:
        r = next_field(header, n, &at, &key, &value)
    return r == READ_END


cdef bint find(const char *header, size_t n, const char *name, Slice *value) noexcept nogil:
    """Find the first value of a field in a well-formed block; `name` is in lower case."""
    cdef Slice key
    cdef size_t at = 0, i
    while next_field(header, n, &at, &key, value) == READ_FIELD:
        i = 0
        while i < key.n and name[i] != 0 and lower(key.p[i]) == name[i]:
            i += 1
        if i == key.n and name[i] == 0:
            return True
    return False


cdef size_t field(const Slice *value, char separator, size_t which, Slice *out) noexcept nogil:
    """Write the part with index `which` between separators to `out`, empty if there is none. Return how many there
    are."""
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
    """Return the value of one or two hexadecimal digits, -1 for anything else."""
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
    if not well_formed(header, n):
        return False
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
    """Return whether this header block asks for a measurement."""
    return sampled_by_header(PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))


def fields(bytes header not None) -> list:
    """Return the fields of a header block in order, [(key, value)]; [] for a block that is not well-formed."""
    cdef Slice key, value
    cdef size_t at = 0
    cdef size_t n = PyBytes_GET_SIZE(header)
    cdef const char *p = PyBytes_AS_STRING(header)
    cdef list found = []
    if well_formed(p, n):
        while next_field(p, n, &at, &key, &value) == READ_FIELD:
            found.append((key.p[:key.n], value.p[:value.n]))
    return found
