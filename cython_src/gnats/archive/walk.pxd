"""The records of a block file, one after the other, as recovery reads them: checked, damage passed over and noted.

A file is read into a window, so that nothing of it changes between the check of a record and its use, and no file that
is cut short raises a signal. The window holds CHUNK bytes or the largest record; the whole rest of a block when
something in it is damaged.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.store.highway cimport HighwayKey
from gnats.store.record cimport Record

cdef enum:
    CHUNK = 256 * 1024
    LARGE_RECORD = 16 * 1024
    LEAD = 1024         # what is in front of a payload may be, for walk_into


cdef enum WalkError:
    WALK_END = 0
    WALK_RECORD = 1
    WALK_NO_MEMORY = -1
    WALK_UNREADABLE = -2        # `err` says why


cdef enum DamageKind:
    DAMAGE_NONE             # the last record of a block is not all there: it is being written, or was never
    DAMAGE_LENGTHS
    DAMAGE_HASH
    DAMAGE_GAP              # a record, but of a sequence that is much too far on


cdef struct Hole:
    uint64_t start, end         # bytes of the file
    uint64_t first, last        # sequences that are not there; 0: not known
    DamageKind kind


cdef struct Walk:
    HighwayKey key
    int fd                      # -1: everything is in the window
    const uint8_t *window
    uint8_t *own                # what the window is, unless it is somebody else's
    size_t n, room
    uint64_t start              # offset of the window in the file
    uint64_t end                # of the file
    uint64_t at                 # of the next record
    uint64_t last               # sequence of the last record that was no tombstone
    uint64_t skipped            # how far that is from the first message
    bint seen                   # there was a message
    bint is_last                # block
    bint every                  # records come whatever their sequences are
    bint reread                 # the rest of the file is in the window
    bint large                  # the last record was
    int err
    Hole *holes
    size_t n_holes, holes_room
    size_t open_holes           # those before this one have their sequences


cdef void walk_free(Walk *w) noexcept nogil
# The next record, whose bytes stay until the next call: WALK_RECORD, WALK_END or a WalkError. Records of messages and
# of erased ones come with sequences that only grow.
cdef int walk_next(Walk *w, Record *r) noexcept nogil
# The same for a large message, and without a copy of it: its payload goes to `payload`, where there is `room` for it
# and for RECORD_HASH bytes. What is before it in the file is written before it, too, `before` and LEAD bytes at most;
# what was there, `lead` bytes, is in `saved`, to be put back by the caller. 0: not so; walk_next() knows.
cdef int walk_into(
    Walk *w, char *payload, size_t before, size_t room, char *saved, size_t *lead, Record *r,
) noexcept nogil
