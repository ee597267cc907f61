"""Write text into memory with room for it, each function returning its end, and compare text.

The compiler folds strlen() of a literal to a constant, so its bytes need not be counted by hand. A text that several
functions use is a macro in C, since a variable of Cython has no constant value.
"""
from libc.stddef cimport size_t
from libc.string cimport memcmp, memcpy, strlen

cdef enum:
    NUMBER_ROOM = 20    # digits of the largest 64-bit number

cdef extern from * nogil:
    """
    #define GNATS_HEX_DIGITS "0123456789abcdef"
    """
    const char *HEX_DIGITS "GNATS_HEX_DIGITS"


cdef inline char *put(char *p, const char *src, size_t n) noexcept nogil:
    memcpy(p, src, n)
    return p + n


cdef inline char *put_text(char *p, const char *text) noexcept nogil:
    """Write a literal."""
    return put(p, text, strlen(text))


cdef inline char *put_number(char *p, size_t n) noexcept nogil:
    """Write a number in decimal, at most NUMBER_ROOM digits."""
    cdef char[NUMBER_ROOM] digits
    cdef size_t at = sizeof(digits)
    while True:
        at -= 1
        digits[at] = c'0' + n % 10
        n //= 10
        if n == 0:
            break
    return put(p, digits + at, sizeof(digits) - at)


cdef inline bint is_text(const char *p, size_t n, const char *text) noexcept nogil:
    """Return whether the bytes are those of a literal."""
    return n == strlen(text) and memcmp(p, text, strlen(text)) == 0


cdef inline bint starts_with_text(const char *p, size_t n, const char *text) noexcept nogil:
    """Return whether the bytes begin with a literal, or are it."""
    return n >= strlen(text) and memcmp(p, text, strlen(text)) == 0


cdef inline bint goes_on_from_text(const char *p, size_t n, const char *text) noexcept nogil:
    """Return whether the bytes begin with a literal and go on behind it."""
    return n > strlen(text) and memcmp(p, text, strlen(text)) == 0


cdef inline bint ends_with_text(const char *p, size_t n, const char *text) noexcept nogil:
    return n > strlen(text) and memcmp(p + n - strlen(text), text, strlen(text)) == 0
