"""Header blocks; see headers.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove, strlen

from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport put, put_text, starts_with_text


cdef size_t find_line(const char *hdr, size_t n, const char *name, size_t name_n, size_t *end) noexcept nogil:
    """Return the start of the first line with this name, 0 for none; end[0] is its end."""
    cdef size_t at = header_line_end(hdr, n, 0)
    while at + LINE_END < n:
        at += LINE_END
        end[0] = header_line_end(hdr, n, at)
        if end[0] - at > name_n and hdr[at + name_n] == c':' and memcmp(hdr + at, name, name_n) == 0:
            return at
        at = end[0]
    return 0


cdef Slice find_header(const char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil:
    cdef size_t end = 0
    cdef size_t at = find_line(hdr, n, name, name_n, &end)
    cdef Slice none
    none.p = NULL
    none.n = 0
    return header_value_at(hdr, at + name_n + 1, end) if at else none


cdef size_t remove_status(char *hdr, size_t n) noexcept nogil:
    cdef const char *cr
    cdef size_t status_n
    if not starts_with_text(hdr, n, VERSION):
        return n
    cr = <const char *> memchr(hdr, c'\r', n)
    if cr == NULL or cr == hdr + strlen(VERSION):
        return n
    status_n = cr - hdr - strlen(VERSION)
    n -= status_n
    memmove(hdr + strlen(VERSION), cr, n - strlen(VERSION))
    return n if n != EMPTY_HEADER else 0


cdef bint cut_line(char *hdr, size_t *n, size_t at, size_t end) noexcept nogil:
    """Remove the line from `at` to `end`. False when there was none, or when no field is left."""
    if at == 0 or end == n[0]:
        return False
    end += LINE_END
    memmove(hdr + at, hdr + end, n[0] - end)
    n[0] -= end - at
    if n[0] <= EMPTY_HEADER:
        n[0] = 0
    return n[0] != 0


cdef size_t remove_header(char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil:
    cdef size_t at, end = 0
    while True:
        at = find_line(hdr, n, name, name_n, &end)
        if not cut_line(hdr, &n, at, end):
            return n


cdef size_t find_like(const char *hdr, size_t n, const char *prefix, size_t prefix_n, size_t *end) noexcept nogil:
    """Return the start of the first line with this prefix, 0 for none; end[0] is its end."""
    cdef size_t at = header_line_end(hdr, n, 0)
    while at + LINE_END < n:
        at += LINE_END
        end[0] = header_line_end(hdr, n, at)
        if end[0] - at >= prefix_n and memcmp(hdr + at, prefix, prefix_n) == 0:
            return at
        at = end[0]
    return 0


cdef bint has_header_like(const char *hdr, size_t n, const char *prefix, size_t prefix_n) noexcept nogil:
    cdef size_t end = 0
    return find_like(hdr, n, prefix, prefix_n, &end) != 0


cdef size_t remove_headers_like(char *hdr, size_t n, const char *prefix, size_t prefix_n) noexcept nogil:
    cdef size_t at, end = 0
    while True:
        at = find_like(hdr, n, prefix, prefix_n, &end)
        if not cut_line(hdr, &n, at, end):
            return n


cdef char *begin_header(char *out, const char *hdr, size_t n) noexcept nogil:
    if n <= LINE_END:
        return put_text(out, VERSION_TEXT)
    return out + n - LINE_END if out == hdr else put(out, hdr, n - LINE_END)


cdef char *begin_header_without(
    char *out, const char *hdr, size_t n, const char *name, size_t name_n
) noexcept nogil:
    cdef const char *at = hdr
    cdef const char *stop = hdr + (n - LINE_END if n > LINE_END else 0)
    cdef const char *lf
    cdef const char *following
    cdef char *p = out
    cdef size_t line_n
    while at < stop:
        lf = <const char *> memchr(at, c'\n', stop - at)
        following = lf + 1 if lf != NULL else stop
        line_n = following - at
        if line_n <= name_n or at[name_n] != c':' or memcmp(at, name, name_n) != 0:
            p = put(p, at, line_n)
        at = following
    if p == out:
        return put_text(out, VERSION_TEXT)
    if p - out < LINE_END or memcmp(p - LINE_END, CRLF, LINE_END) != 0:
        p = put_text(p, CRLF)
    return p


cdef size_t add_header(
    char *out, const char *hdr, size_t n, const char *name, size_t name_n, const char *value, size_t value_n
) noexcept nogil:
    cdef char *p = put(begin_header(out, hdr, n), name, name_n)
    p = put(put_text(p, b": "), value, value_n)
    return put_text(put_text(p, CRLF), CRLF) - out


cdef size_t set_header(
    char *hdr, size_t n, const char *name, size_t name_n, const char *value, size_t value_n
) noexcept nogil:
    cdef size_t end = 0
    cdef size_t at = find_line(hdr, n, name, name_n, &end)
    if at == 0:
        return add_header(hdr, hdr, n, name, name_n, value, value_n)
    at += name_n + 1
    if at < end and hdr[at] == c' ':
        at += 1
    memmove(hdr + at + value_n, hdr + end, n - end)
    memcpy(hdr + at, value, value_n)
    return n - (end - at) + value_n


# -- for Python ------------------------------------------------------------------------------------------------------

def header_value(bytes header not None, bytes name not None) -> bytes | None:
    """Return the value of the first line with this name in a header block, None without one."""
    cdef Slice value = find_header(
        PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header), PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    return value.p[:value.n] if value.p != NULL else None


# -- for tests -------------------------------------------------------------------------------------------------------

def probe_change(str what not None, bytes header not None, bytes name not None, bytes value=b"") -> bytes:
    """Return a block after a change. `what`: "status" removes the status, "remove" the lines of a name, "remove like"
    lines with a prefix; "add" and "set" a line; "without" is begin_header_without(). The memory is as large as the
    function asks for, and no larger."""
    cdef size_t n = PyBytes_GET_SIZE(header), name_n = PyBytes_GET_SIZE(name), value_n = PyBytes_GET_SIZE(value)
    cdef size_t room = n if what in ("status", "remove", "remove like") else (
        n + VERSION_LINE + LINE_END if what == "without" else n + name_n + value_n + 16)
    cdef char *hdr = <char *> malloc(max(room, <size_t> 1))
    try:
        if hdr == NULL:
            raise MemoryError
        memcpy(hdr, PyBytes_AS_STRING(header), n)
        if what == "status":
            n = remove_status(hdr, n)
        elif what == "remove":
            n = remove_header(hdr, n, name, name_n)
        elif what == "remove like":
            n = remove_headers_like(hdr, n, name, name_n)
        elif what == "add":
            n = add_header(hdr, hdr, n, name, name_n, value, value_n)
        elif what == "set":
            n = set_header(hdr, n, name, name_n, value, value_n)
        elif what == "without":
            n = begin_header_without(hdr, PyBytes_AS_STRING(header), n, name, name_n) - hdr
        else:
            raise ValueError(what)
        return PyBytes_FromStringAndSize(hdr, n)
    finally:
        free(hdr)
