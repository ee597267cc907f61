"""Subject transforms: the subject that another one becomes under a mapping or an import (ports subject_transform.go).

A Transform is compiled once, never changes, and is one malloc block, so that it can be retired (core.runtime.quiesce)
while pollers may still use it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from gnats.core.subjects.subject cimport subject_is_subset_match

cdef enum:
    LITERAL_TOKEN = 0
    PARTITION = 1
    WILDCARD = 2
    SPLIT_FROM_LEFT = 3
    SPLIT_FROM_RIGHT = 4
    SLICE_FROM_LEFT = 5
    SLICE_FROM_RIGHT = 6
    SPLIT = 7
    LEFT = 8
    RIGHT = 9
    RANDOM = 10


# One token of the destination.
cdef struct Step:
    uint8_t kind
    int32_t number      # number of buckets, position or size
    uint32_t text       # offset in the block; LITERAL_TOKEN: the token; SPLIT: the delimiter
    uint32_t text_n
    uint32_t first      # of its source tokens, in the block's indexes
    uint32_t count      # of these


cdef struct Transform:
    size_t nbytes       # bytes of the block
    uint32_t src        # offset of the source subject in the block
    uint32_t src_n
    uint32_t src_tokens
    uint32_t nsteps
    uint8_t tail        # source and destination end in `>`: append what that stands for
    Step *steps
    uint32_t *indexes   # of tokens in the source subject


cdef inline const char *transform_src(const Transform *t) noexcept nogil:
    return <const char *> t + t.src


cdef inline bint transform_matches(const Transform *t, const char *subject, size_t n) noexcept nogil:
    return subject_is_subset_match(subject, n, transform_src(t), t.src_n)


# Transform `subject` into out[:room]. Return the length, which may be more than the `room` bytes written at most. `rng`
# is the state of a xorshift generator. Without `hashed`, a partition over the whole subject hashes nothing.
cdef size_t transform_apply(
    const Transform *t, const char *subject, size_t n, uint64_t *rng, bint hashed, char *out, size_t room,
) noexcept nogil

# Copy a transform; the caller owns the copy. NULL when out of memory.
cdef Transform *transform_copy(const Transform *t) noexcept nogil


cdef class SubjectTransform:
    cdef Transform *compiled
    cdef readonly bytes src, dest
    cdef tuple stoks
