"""Writing text into memory that has room for it. Each returns where it ends; nobody counts a literal's bytes."""
from libc.stddef cimport size_t
from libc.string cimport memcpy, strlen

cdef enum:
    NUMBER_ROOM = 20    # digits of the largest size_t


cdef inline char *put(char *p, const char *src, size_t n) noexcept nogil:
    memcpy(p, src, n)
    return p + n


cdef inline char *put_text(char *p, const char *text) noexcept nogil:
    """A literal: its length is a constant once this is inlined."""
    return put(p, text, strlen(text))


cdef inline char *put_number(char *p, size_t n) noexcept nogil:
    """In decimal."""
    cdef char[NUMBER_ROOM] digits
    cdef size_t at = sizeof(digits)
    while True:
        at -= 1
        digits[at] = c'0' + n % 10
        n //= 10
        if n == 0:
            break
    return put(p, digits + at, sizeof(digits) - at)
