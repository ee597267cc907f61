"""The words of a verb's arguments."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.runtime.slice cimport Slice


# Split a line into out[:most]. Return the number of words, most + 1 when there are more.
cdef uint32_t split_line(char *arg, size_t n, Slice *out, uint32_t most) noexcept nogil

# Return the number that up to nine decimal digits spell, -1 for anything else.
cdef int parse_size(const char *p, size_t n) noexcept nogil
