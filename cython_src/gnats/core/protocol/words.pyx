"""The words of a verb's arguments; see words.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.runtime.slice cimport Slice


cdef uint32_t split_line(char *arg, size_t n, Slice *out, uint32_t most) noexcept nogil:
    cdef uint32_t count = 0
    cdef size_t i
    cdef bint inside = False
    for i in range(n):
        if arg[i] == c' ' or arg[i] == c'\t' or arg[i] == c'\r' or arg[i] == c'\n':
            if inside:
                out[count - 1].n = arg + i - out[count - 1].p
                inside = False
        elif not inside:
            if count == most:
                return most + 1
            out[count].p = arg + i
            count += 1
            inside = True
    if inside:
        out[count - 1].n = arg + n - out[count - 1].p
    return count


cdef int parse_size(const char *p, size_t n) noexcept nogil:
    cdef int value = 0
    cdef size_t i
    if n == 0 or n > 9:
        return -1
    for i in range(n):
        if p[i] < c'0' or p[i] > c'9':
            return -1
        value = value * 10 + (p[i] - c'0')
    return value
