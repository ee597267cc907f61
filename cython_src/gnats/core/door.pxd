"""Who comes again: caches keep only what is asked for a second time.

Reply subjects are used once. Kept, they would push out what is worth keeping, and cost more than they can save.
"""
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport calloc

cdef enum:
    DOOR_TAGS = 65536


cdef struct Door:
    uint16_t *tags       # by the low half of a hash, the high half of who was there last; 0 for nobody
    uint32_t turn


cdef inline bint door_known(Door *d, uint32_t hash) noexcept nogil:
    """Was this hash here before? If not, it may be remembered; without memory everybody is known."""
    cdef uint32_t at = hash & (DOOR_TAGS - 1)
    cdef uint16_t tag = <uint16_t> (hash >> 16 | 1)
    if d.tags == NULL:
        d.tags = <uint16_t *> calloc(DOOR_TAGS, sizeof(uint16_t))
        if d.tags == NULL:
            return True
    if d.tags[at] == tag:
        return True
    # of several with one place, taking turns, one must be able to stay
    d.turn = d.turn * 1664525 + 1013904223
    if d.tags[at] == 0 or d.turn >> 31:
        d.tags[at] = tag
    return False
