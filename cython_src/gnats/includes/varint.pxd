"""Variable-length numbers as Go's encoding/binary writes them: 7 bits a byte, signed ones in zigzag."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    MAX_VARINT = 10


cdef inline uint8_t *put_uvarint(uint8_t *p, uint64_t v) noexcept nogil:
    while v >= 0x80:
        p[0] = <uint8_t> (v | 0x80)
        v >>= 7
        p += 1
    p[0] = <uint8_t> v
    return p + 1


cdef inline uint8_t *put_varint(uint8_t *p, int64_t v) noexcept nogil:
    return put_uvarint(p, <uint64_t> v << 1 ^ <uint64_t> (v >> 63))


# Read a number and move the position behind it. False at the end, and for more than 64 bits.
cdef inline bint get_uvarint(const uint8_t **at, const uint8_t *end, uint64_t *v) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef uint64_t value = 0
    cdef int shift = 0
    while p < end:
        if shift == 63 and p[0] > 1:
            return False
        value |= <uint64_t> (p[0] & 0x7f) << shift
        if p[0] < 0x80:
            at[0] = p + 1
            v[0] = value
            return True
        p += 1
        shift += 7
    return False


cdef inline bint get_varint(const uint8_t **at, const uint8_t *end, int64_t *v) noexcept nogil:
    cdef uint64_t u = 0
    if not get_uvarint(at, end, &u):
        return False
    v[0] = <int64_t> (u >> 1) ^ -<int64_t> (u & 1)
    return True
