"""Header blocks: find, read, remove and add lines, without Python. The server's only reader of headers.

A block is the header part of a message: any bytes. Only its size is checked by the protocol; no function here reads or
writes outside of it. A well-formed block begins with the line "NATS/1.0" and ends with an empty line. Lines are
separated by CR LF; the first one is no field. Names are compared as they are written; of several lines with one name
the first counts. Values lose leading blanks.
"""
from libc.stddef cimport size_t
from libc.string cimport memchr, strlen

from gnats.core.runtime.slice cimport Slice

cdef extern from * nogil:
    """
    #define GNATS_CRLF "\\r\\n"
    #define GNATS_VERSION "NATS/1.0"
    #define GNATS_VERSION_LINE GNATS_VERSION GNATS_CRLF
    """
    const char *CRLF "GNATS_CRLF"
    const char *VERSION "GNATS_VERSION"
    const char *VERSION_TEXT "GNATS_VERSION_LINE"    # the first line of a block made here
    enum:
        LINE_END "((int)sizeof(GNATS_CRLF) - 1)"   # bytes; an empty line ends a block
        VERSION_LINE "((int)sizeof(GNATS_VERSION_LINE) - 1)"
        EMPTY_HEADER "((int)sizeof(GNATS_VERSION_LINE GNATS_CRLF) - 1)"    # bytes of a block without fields


cdef inline size_t header_line_end(const char *hdr, size_t n, size_t at) noexcept nogil:
    """Return the position of the next CR LF from `at` on, n without one."""
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
    """Return the value in the line that ends at `end`; `at` is behind its colon."""
    cdef Slice value
    while at < end and hdr[at] == c' ':
        at += 1
    value.p = <char *> hdr + at
    value.n = end - at
    return value


# Return the value of the first line with this name; p is NULL without one.
cdef Slice find_header(const char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil


cdef inline Slice named_header(const char *hdr, size_t n, const char *name) noexcept nogil:
    """As find_header, for a literal name."""
    return find_header(hdr, n, name, strlen(name))


# Return whether a line begins with this prefix.
cdef bint has_header_like(const char *hdr, size_t n, const char *prefix, size_t prefix_n) noexcept nogil

# These change a block in place and return its new size, 0 when no field is left.
# Remove the status ("NATS/1.0 503 ..." becomes "NATS/1.0").
cdef size_t remove_status(char *hdr, size_t n) noexcept nogil
# Remove the lines with this name.
cdef size_t remove_header(char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil
# Remove the lines that begin with this prefix.
cdef size_t remove_headers_like(char *hdr, size_t n, const char *prefix, size_t prefix_n) noexcept nogil


# To add lines to a block, write begin_header(), the lines with their CR LF, and CR LF.
cdef inline size_t header_begin_size(size_t n) noexcept nogil:
    """Return the bytes that begin_header() writes for a block of n bytes."""
    return n - LINE_END if n > LINE_END else VERSION_LINE


# Write a block without its empty line, or a version line for a block of no lines. Return the end in `out`, which may be
# hdr.
cdef char *begin_header(char *out, const char *hdr, size_t n) noexcept nogil
# As begin_header, without the lines of this name, however a reader splits the block into lines: a LF alone ends a line,
# too; the first line counts as a field; the last line needs no end. Writes at most n + VERSION_LINE + LINE_END bytes,
# not in place, and ends with CR LF.
cdef char *begin_header_without(char *out, const char *hdr, size_t n, const char *name, size_t name_n) noexcept nogil

# Add a line. `out` has room for n + name_n + value_n + 16 bytes and may be hdr. Return the new size.
cdef size_t add_header(char *out, const char *hdr, size_t n, const char *name, size_t name_n, const char *value,
                       size_t value_n) noexcept nogil
# As add_header, in place, replacing the value of the first line with this name if there is one (setHeader).
cdef size_t set_header(char *hdr, size_t n, const char *name, size_t name_n, const char *value,
                       size_t value_n) noexcept nogil
