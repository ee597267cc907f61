"""An account's subject mappings (accounts.go): the subject that a published message gets instead of its own.

Mappings are compiled once, never change, and are one malloc block, so that they can be retired (core.runtime.quiesce).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from gnats.core.subjects.transform cimport Transform


cdef struct Destination:
    Transform *transform   # in the block
    uint32_t upto          # chosen for random numbers (0 to 99) below this and not below the previous destination's


cdef struct MapRow:
    const char *src        # in the block
    uint32_t src_n
    uint8_t wildcard
    uint32_t ndests
    Destination *dests


cdef struct Mappings:
    uint32_t nrows
    MapRow *rows


# Compile [(source, [(SubjectTransform, upto)])]; the caller owns the block. Raises MemoryError.
cdef Mappings *mappings_compile(list rows) except NULL

# Map `subject`. Return whether a mapping matches; then its result is in out[:room], and its length in length[0], which
# may be more than `room`. An empty result: the message is lost.
cdef bint select_mapped_subject(
    const Mappings *m, const char *subject, size_t n, uint64_t *rng, char *out, size_t room, size_t *length,
) noexcept nogil
