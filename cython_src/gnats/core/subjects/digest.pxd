"""Digests of interest, with which two servers find out whether one knows all that the other has told it.

Each subject, or subject and queue group, that a link tells of has a digest. Their sum, each times the group's weight,
changes with every line that is written and with every line that is read: see core.links.heard. The bytes are those of
the sid that the reader makes of a line (core.links.remote_subs). All servers compute the same.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport mul_mix

cdef enum:
    # A larger weight of a queue group counts as this: sums of weights have room for many links.
    MOST_WEIGHT = 1 << 20


cdef inline uint64_t digest_more(uint64_t digest, const char *p, size_t n) noexcept nogil:
    """Add n bytes to a digest that has begun with digest_begin() (FNV-1a)."""
    cdef size_t i
    for i in range(n):
        digest = (digest ^ <uint8_t> p[i]) * <uint64_t> 0x100000001B3
    return digest


cdef inline uint64_t digest_begin(char kind) noexcept nogil:
    return digest_more(<uint64_t> 0xCBF29CE484222325, &kind, 1)


cdef inline uint64_t digest_word(uint64_t digest, const Slice *word) noexcept nogil:
    cdef char blank = c' '
    return digest_more(digest_more(digest, &blank, 1), word.p, word.n)


cdef inline uint64_t digest_end(uint64_t digest) noexcept nogil:
    # Without this, exchanged endings of two names would leave a sum as it is.
    return mul_mix(digest, <uint64_t> 0x9E3779B97F4A7C15)


cdef inline uint64_t digest_of_sid(const char *sid, size_t n) noexcept nogil:
    return digest_end(digest_more(digest_begin(sid[0]), sid + 1, n - 1))
