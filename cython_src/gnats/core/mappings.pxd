"""An account's subject mappings (accounts.go): which subject a published message goes to instead of its own.

Mappings are compiled once, never change, and are one malloc block, so that they can be retired (core.quiesce).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.core.transform cimport Transform


cdef struct Destination:
    Transform *transform   # in the block
    uint32_t upto          # taken by random numbers of 0 to 99 below this, and not below that of the one before


cdef struct MapRow:
    const char *src        # in the block
    uint32_t src_n
    uint8_t wildcard
    uint32_t ndests
    Destination *dests


cdef struct Mappings:
    uint32_t nrows
    MapRow *rows


# Of [(source, [(SubjectTransform, upto)])]; the caller owns the block. Raises MemoryError.
cdef Mappings *mappings_compile(list rows) except NULL

# Where a message to `subject` goes: True when a mapping matches, and then its destination in out[:room], its length in
# `length` (of which no more than `room` was written). A destination of no bytes: the message is lost.
cdef bint select_mapped_subject(
    const Mappings *m, const char *subject, size_t n, uint64_t *rng, char *out, size_t room, size_t *length,
) noexcept nogil
