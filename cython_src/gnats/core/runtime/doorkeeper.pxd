"""A filter for caches: cache only what is asked for a second time.

Reply subjects are used once. To cache them would push out useful entries, and cost more than it can save.
"""
from libc.stdint cimport uint16_t, uint32_t
from libc.stdlib cimport calloc

cdef enum:
    DOOR_TAGS = 65536


cdef struct Door:
    uint16_t *tags       # at the low 16 bits of a hash: the high bits of the hash noted there; 0: none
    uint32_t random      # the state of a generator of random numbers


cdef inline bint door_known(Door *d, uint32_t hash) noexcept nogil:
    """Return whether this hash has come before; if not, it may be noted. Without memory every hash has."""
    cdef uint32_t at = hash & (DOOR_TAGS - 1)
    cdef uint16_t tag = <uint16_t> (hash >> 16 | 1)
    if d.tags == NULL:
        d.tags = <uint16_t *> calloc(DOOR_TAGS, sizeof(uint16_t))
        if d.tags == NULL:
            return True
    if d.tags[at] == tag:
        return True
    # Hashes may share a place. Replace the noted one only half of the time, at random: when several take turns, one
    # of them can stay long enough to come again.
    d.random = d.random * 1664525 + 1013904223
    if d.tags[at] == 0 or d.random >> 31:
        d.tags[at] = tag
    return False
