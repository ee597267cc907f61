"""Arrays that grow by doubling."""
from libc.stddef cimport size_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy


cdef inline bint array_grow(void *array, size_t *room, size_t first, size_t width) noexcept nogil:
    """Double the room of the array whose address is at `array`: elements of `width` bytes, `first` of them at least.

    False, and nothing changes, when out of memory.
    """
    cdef size_t most = room[0] * 2 if room[0] * 2 > first else first
    cdef void *p
    memcpy(&p, array, sizeof(p))   # whatever the type of its elements
    p = realloc(p, most * width)
    if p == NULL:
        return False
    memcpy(array, &p, sizeof(p))
    room[0] = most
    return True
