"""Conversion of bytes to the text of an Arrow column, and back.

Subjects and headers are bytes to a server; Arrow needs UTF-8. A byte that is not part of UTF-8 becomes `\\xNN`, with
two lower-case hexadecimal digits. So does a backslash before text that would look like such an escape. Other bytes stay
as they are. The conversion loses nothing: the text can be turned back into the same bytes.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    MOST_SHOWN = 4      # most bytes of text for one byte


# Whether the text is the bytes themselves: they are all ASCII, without a backslash.
cdef inline bint is_plain(const uint8_t *p, size_t n) noexcept nogil:
    cdef uint64_t word, other
    while n >= 8:
        memcpy(&word, p, 8)
        other = word ^ 0x5c5c5c5c5c5c5c5cULL
        if (word | ((other - 0x0101010101010101ULL) & ~other)) & 0x8080808080808080ULL:
            return False
        p += 8
        n -= 8
    while n:
        if p[0] & 0x80 or p[0] == c'\\':
            return False
        p += 1
        n -= 1
    return True


# Write the text of n bytes, at most MOST_SHOWN * n bytes. Return its size.
cdef size_t show_bytes(const uint8_t *p, size_t n, uint8_t *out) noexcept nogil
