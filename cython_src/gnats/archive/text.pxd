"""Bytes as the text of an Arrow column, and back again.

Subjects and headers are bytes to a server, and text to Arrow: UTF-8. Bytes that are no UTF-8 become `\\xNN`, with two
hexadecimal digits in lower case; so does a backslash in front of what would read like one of these. Everything else
stays as it is, and what was shown can be turned into the bytes it was made of.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    MOST_SHOWN = 4      # bytes of text for a byte


# Can the bytes be shown as they are? All of ASCII but for a backslash.
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


# The text of n bytes into MOST_SHOWN * n bytes at most; how many it took.
cdef size_t show_bytes(const uint8_t *p, size_t n, uint8_t *out) noexcept nogil
