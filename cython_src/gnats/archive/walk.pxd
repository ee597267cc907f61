"""Iteration over the records of a block file, as recovery reads them: each is checked, damage is skipped and noted.

The file is read into a window, not mapped: a record cannot change between its check and its use, and a truncated file
raises no signal. The window has CHUNK bytes or the largest record; after damage it has the whole rest of the block.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.store.format.highway cimport HighwayKey
from gnats.store.format.record cimport Record

cdef enum:
    CHUNK = 256 * 1024
    LARGE_RECORD = 16 * 1024
    LEAD = 1024         # walk_into(): most bytes of a record before its payload


cdef enum WalkError:
    WALK_END = 0
    WALK_RECORD = 1
    WALK_NO_MEMORY = -1
    WALK_UNREADABLE = -2        # `err` says why


cdef enum DamageKind:
    DAMAGE_NONE             # the last record is incomplete: a server is writing it, or ended while it wrote it
    DAMAGE_LENGTHS
    DAMAGE_HASH
    DAMAGE_GAP              # the record is whole, but its sequence is too far after the one before


# A part of the file without a valid record.
cdef struct Hole:
    uint64_t start, end         # offsets in the file
    uint64_t first, last        # sequences that may be missing; 0: not known
    DamageKind kind


cdef struct Walk:
    HighwayKey key
    int fd                      # -1: the window has the whole block
    const uint8_t *window
    uint8_t *own                # memory of the window; NULL: the caller's
    size_t n, room              # bytes in the window, size of `own`
    uint64_t start              # offset of the window in the file
    uint64_t end                # size of the file
    uint64_t at                 # offset of the next record
    uint64_t last               # sequence of the last record that was not a tombstone
    uint64_t skipped            # distance of `last` from the first message
    bint seen                   # there was a message
    bint is_last                # the block is the last of its store
    bint every                  # return also records whose sequence is not greater than `last`
    bint reread                 # the window has the rest of the file
    bint large                  # the last record had at least LARGE_RECORD bytes
    int err                     # errno of WALK_UNREADABLE
    Hole *holes
    size_t n_holes, holes_room
    size_t open_holes           # index of the first hole whose `last` is not known yet


cdef void walk_free(Walk *w) noexcept nogil
# Get the next record, whose bytes stay valid until the next call. WALK_RECORD, WALK_END or a negative WalkError.
# Except with `every`, the sequences of messages and erased records only grow.
cdef int walk_next(Walk *w, Record *r) noexcept nogil
# Read the next record, if it is a large message, so that its payload is at `payload` without a copy. `room` is for the
# payload and RECORD_HASH bytes. The part of the record before the payload, at most LEAD bytes and at most `before`,
# overwrites the bytes before `payload`; the old ones, *lead bytes, are in `saved`, and the caller puts them back.
# WALK_RECORD, or 0: nothing was read, call walk_next().
cdef int walk_into(
    Walk *w, char *payload, size_t before, size_t room, char *saved, size_t *lead, Record *r,
) noexcept nogil
