"""Arrays that grow by doubling."""
from libc.stddef cimport size_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy


cdef inline bint array_grow(void *array, size_t *room, size_t first, size_t width) noexcept nogil:
    """Give the array whose address is at `array` room for twice as many elements of `width` bytes, `first` at least.

    False, and nothing has changed, when out of memory.
    """
    cdef size_t most = room[0] * 2 if room[0] * 2 > first else first
    cdef void *p
    memcpy(&p, array, sizeof(p))   # whatever it points to
    p = realloc(p, most * width)
    if p == NULL:
        return False
    memcpy(array, &p, sizeof(p))
    room[0] = most
    return True
