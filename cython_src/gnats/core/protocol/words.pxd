"""The words of a verb's arguments."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.runtime.slice cimport Slice


# Split a line into out[:most]. Return the number of words, most + 1 when there are more.
cdef uint32_t split_line(char *arg, size_t n, Slice *out, uint32_t most) noexcept nogil


cdef inline bint is_word(const Slice *text) noexcept nogil:
    """Return whether split_line() would find this one word."""
    cdef size_t i
    for i in range(text.n):
        if text.p[i] == c' ' or text.p[i] == c'\t' or text.p[i] == c'\r' or text.p[i] == c'\n':
            return False
    return text.n != 0


# Return the number that up to nine decimal digits spell, -1 for anything else.
cdef int parse_size(const char *p, size_t n) noexcept nogil
