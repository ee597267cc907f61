"""Expiry times of sequences: a hash wheel of 4096 slots of one second (thw/thw.go).

Each sequence has one time. A hash table finds an entry by its sequence; a list of entries for each slot finds those of
a time. A slot has a lower bound of the times in it. A wheel has no lock: its owner makes sure that one thread at a time
uses it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    WHEEL_SLOTS = 4096
    WHEEL_HEADER = 17        # bytes before the entries of an encoded wheel: version, entries u64, high sequence u64

cdef enum WheelError:
    WHEEL_BAD = -1           # not an encoded wheel
    WHEEL_NO_MEMORY = -2


cdef struct WheelEntry:
    uint64_t seq
    int64_t expires          # ns since 1970
    uint32_t next            # in the list of its slot, or of free entries: index + 1, 0: none
    uint32_t prev


cdef struct WheelSlot:
    int64_t lowest           # no entry of the slot expires before
    uint32_t first           # index + 1 of the first entry
    uint32_t used            # entries in the slot


cdef struct Wheel:
    WheelSlot *slots         # NULL before the first entry
    WheelEntry *entries
    uint32_t *table          # hash table from sequences to entries: index + 1, 0: none
    uint32_t mask            # size of the table - 1
    uint32_t room            # entries that the array has room for
    uint32_t top             # entries that were ever in use
    uint32_t free            # first free entry: index + 1, 0: none
    uint32_t count           # entries in use
    int64_t lowest           # no entry expires before


cdef struct Expiry:
    uint64_t seq
    int64_t expires


cdef void wheel_init(Wheel *w) noexcept nogil
cdef void wheel_clear(Wheel *w) noexcept nogil
# Set when a sequence expires, in ns since 1970; 0 or WHEEL_NO_MEMORY.
cdef int wheel_add(Wheel *w, uint64_t seq, int64_t expires) noexcept nogil
cdef bint wheel_has(const Wheel *w, uint64_t seq) noexcept nogil
cdef bint wheel_find(const Wheel *w, uint64_t seq, int64_t *expires) noexcept nogil
cdef bint wheel_remove(Wheel *w, uint64_t seq) noexcept nogil       # False: it has no time
# Take out entries that expire at `now` or before, in no order. Return their number. If it is `room`, there may be more.
cdef size_t wheel_take(Wheel *w, int64_t now, Expiry *out, size_t room) noexcept nogil
# Return a time before which no entry expires: exact after a take, maybe too early after a removal. INT64_MAX: no
# entries.
cdef int64_t wheel_next(const Wheel *w) noexcept nogil

# Encode thw.db: at most wheel_room() bytes. Return the bytes written.
cdef size_t wheel_room(const Wheel *w) noexcept nogil
cdef size_t wheel_encode(const Wheel *w, uint64_t high_seq, uint8_t *out) noexcept nogil
# Replace all entries by decoded ones. 0 or a WheelError; then the wheel is empty.
cdef int wheel_decode(Wheel *w, const uint8_t *data, size_t n, uint64_t *high_seq) noexcept nogil
