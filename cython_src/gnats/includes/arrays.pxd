"""Arrays that grow by doubling."""
from libc.stddef cimport size_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy

from gnats.includes.sums cimport room_mul


cdef inline bint array_grow(void *array, size_t *room, size_t first, size_t width) noexcept nogil:
    """Double the room of the array whose address is at `array`: elements of `width` bytes, `first` of them at least.

    False, and nothing changes, when out of memory.
    """
    cdef size_t most = room[0], size
    cdef void *p
    if not room_mul(&most, 2):
        return False
    if most < first:
        most = first
    size = most
    if not room_mul(&size, width):
        return False
    memcpy(&p, array, sizeof(p))   # whatever the type of its elements
    p = realloc(p, size)
    if p == NULL:
        return False
    memcpy(array, &p, sizeof(p))
    room[0] = most
    return True
