"""Header blocks: lines found, read, removed and added, without Python. The server's one reader of them.

A block is what a client calls a header: any bytes. Its size is what the protocol has checked; nothing else is trusted,
and no function here reads or writes outside of it. In a well-formed block the line "NATS/1.0" comes first and an empty
line last. A line goes from CR LF to CR LF, so that the first one is no field; its name is exactly as it is written,
and of several lines with one name the first counts. Values lose the blanks before them.
"""
from libc.stddef cimport size_t
from libc.string cimport memchr

from gnats.core.slice cimport Slice


cdef enum:
    LINE_END = 2         # bytes of CR LF: an empty line ends a block
    VERSION_LINE = 10    # bytes of the first line of a block that is made here
    EMPTY_HEADER = 12    # bytes of a block without fields


cdef inline size_t header_line_end(const char *hdr, size_t n, size_t at) noexcept nogil:
    """Where the next CR LF is from `at` on, n without one."""
    cdef const char *p
    while at + 1 < n:
        p = <const char *> memchr(hdr + at, c'\r', n - 1 - at)
        if p == NULL:
            return n
        at = p - hdr
        if p[1] == c'\n':
            return at
        at += 1
    return n


cdef inline Slice header_value_at(const char *hdr, size_t at, size_t end) noexcept nogil:
    """The value in the line that ends at `end`; `at` is behind its colon."""
    cdef Slice value
    while at < end and hdr[at] == c' ':
        at += 1
    value.p = <char *> hdr + at
    value.n = end - at
    return value


# The value of the first line with that name; p is NULL without one.
cdef Slice find_header(const char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil
# Is there a line that begins with this?
cdef bint has_header_like(const char *hdr, size_t n, const char *prefix, size_t prefix_n) noexcept nogil

# Without its status ("NATS/1.0 503 ..." becomes "NATS/1.0"), in place; the size, 0 when nothing is left.
cdef size_t remove_status(char *hdr, size_t n) noexcept nogil
# Without the lines of that name, in place; the size, 0 when nothing is left.
cdef size_t remove_header(char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil
# Without the lines that begin so, in place; the size, 0 when nothing is left.
cdef size_t remove_headers_like(char *hdr, size_t n, const char *prefix, size_t prefix_n) noexcept nogil


# Adding lines to a block is to write begin_header(), the lines with their ends, and CR LF.
cdef inline size_t header_begin_size(size_t n) noexcept nogil:
    """Bytes that begin_header() writes for a block of n bytes."""
    return n - LINE_END if n > LINE_END else VERSION_LINE


# A block without its empty line; a version line where there is nothing of a block. The end of it in `out`, which may
# be hdr.
cdef char *begin_header(char *out, const char *hdr, size_t n) noexcept nogil
# The same without the lines of a name, in whichever way a reader may take the block for lines: a LF alone ends one,
# too, the first one counts, and the last one needs no end. Writes at most n + VERSION_LINE + LINE_END bytes; not in
# place. Ends with a line's end.
cdef char *begin_header_without(char *out, const char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil

# The block with one line more, at out, which has room for n + name_n + value_n + 16 bytes and may be hdr; its size.
cdef size_t add_header(char *out, const char *hdr, size_t n, const char *name, size_t name_n, const char *value,
                       size_t value_n) noexcept nogil
# The same, but in the place of the first line of that name, if there is one (setHeader).
cdef size_t set_header(char *hdr, size_t n, const char *name, size_t name_n, const char *value,
                       size_t value_n) noexcept nogil
