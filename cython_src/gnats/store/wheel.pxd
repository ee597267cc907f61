"""When sequences expire: a hash wheel of 4096 slots of one second (thw/thw.go).

Each sequence has one time. An entry is found by its sequence in a hash table, and by its time in the list of its
slot; a slot knows the earliest time in it, or one that is earlier. The owner of a wheel has the lock.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    WHEEL_SLOTS = 4096
    WHEEL_HEADER = 17        # of an encoded wheel: version, entries u64, high sequence u64

cdef enum WheelError:
    WHEEL_BAD = -1           # not an encoded wheel
    WHEEL_NO_MEMORY = -2


cdef struct WheelEntry:
    uint64_t seq
    int64_t expires          # ns since 1970
    uint32_t next            # of its slot, or of the free ones; an index plus one, 0 for none
    uint32_t prev


cdef struct WheelSlot:
    int64_t lowest
    uint32_t first
    uint32_t used            # entries


cdef struct Wheel:
    WheelSlot *slots         # NULL before the first entry
    WheelEntry *entries
    uint32_t *table          # from sequences to entries: an index plus one
    uint32_t mask            # of the table
    uint32_t room            # for entries
    uint32_t top             # entries that were ever in use
    uint32_t free
    uint32_t count
    int64_t lowest           # no entry expires before


cdef struct Expiry:
    uint64_t seq
    int64_t expires


cdef void wheel_init(Wheel *w) noexcept nogil
cdef void wheel_clear(Wheel *w) noexcept nogil
# Sets when a sequence expires, in ns since 1970; 0 or WHEEL_NO_MEMORY.
cdef int wheel_add(Wheel *w, uint64_t seq, int64_t expires) noexcept nogil
cdef bint wheel_find(const Wheel *w, uint64_t seq, int64_t *expires) noexcept nogil
cdef bint wheel_remove(Wheel *w, uint64_t seq) noexcept nogil       # was it there?
# Takes out what expires at `now` or before, in no order: how many. When that is `room`, there may be more.
cdef size_t wheel_take(Wheel *w, int64_t now, Expiry *out, size_t room) noexcept nogil
# Nothing expires before; INT64_MAX for an empty wheel. It may be too early after a removal, and is exact after a take.
cdef int64_t wheel_next(const Wheel *w) noexcept nogil

# As thw.db: at most WHEEL_HEADER + 20 * count bytes; the bytes written.
cdef size_t wheel_encode(const Wheel *w, uint64_t high_seq, uint8_t *out) noexcept nogil
# Replaces the entries. 0 or a WheelError, after which the wheel is empty.
cdef int wheel_decode(Wheel *w, const uint8_t *data, size_t n, uint64_t *high_seq) noexcept nogil
