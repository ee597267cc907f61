"""Sums and products of lengths. Use them where a length comes from a file or from a client, for the size of memory."""
from libc.stddef cimport size_t
from libc.string cimport strlen

cdef extern from * nogil:
    """
    #define GNATS_ROOM_ADD(a, b, out) __builtin_add_overflow((a), (b), (out))
    #define GNATS_ROOM_MUL(a, b, out) __builtin_mul_overflow((a), (b), (out))
    """
    bint GNATS_ROOM_ADD(size_t a, size_t b, size_t *out)
    bint GNATS_ROOM_MUL(size_t a, size_t b, size_t *out)


cdef inline bint room_add(size_t *room, size_t n) noexcept nogil:
    """Add to a length. False: the sum does not fit."""
    return not GNATS_ROOM_ADD(room[0], n, room)


cdef inline bint room_mul(size_t *room, size_t n) noexcept nogil:
    """Multiply a length. False: the product does not fit."""
    return not GNATS_ROOM_MUL(room[0], n, room)


cdef inline size_t header_line_room(size_t name_n, size_t value_n) noexcept nogil:
    """Return the bytes of a line of a message's header."""
    return name_n + strlen(b": ") + value_n + strlen(b"\r\n")
