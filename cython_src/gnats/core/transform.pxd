"""Subject transforms: what a subject becomes under a mapping or an import (ports subject_transform.go).

A Transform is compiled once, never changes, and is one malloc block, so that it can be retired (core.quiesce) while
pollers may still be using it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from gnats.core.subject cimport subject_is_subset_match

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
    int32_t number      # buckets, position or size
    uint32_t text       # LITERAL_TOKEN: itself; SPLIT: the delimiter; by its place in the block
    uint32_t text_n
    uint32_t first      # of its source tokens, by place among the block's indexes
    uint32_t count


cdef struct Transform:
    size_t nbytes       # of the block
    uint32_t src        # the source subject, by its place in the block
    uint32_t src_n
    uint32_t src_tokens
    uint32_t nsteps
    uint8_t tail        # both end in `>`: what it stands for is appended
    Step *steps
    uint32_t *indexes


cdef inline const char *transform_src(const Transform *t) noexcept nogil:
    return <const char *> t + t.src


cdef inline bint transform_matches(const Transform *t, const char *subject, size_t n) noexcept nogil:
    return subject_is_subset_match(subject, n, transform_src(t), t.src_n)


# Write what `subject` becomes to out[:room]; its length, of which no more than `room` was written. `rng` is the state
# of a xorshift generator. Without `hashed`, a partition over the whole subject is one over nothing.
cdef size_t transform_apply(
    const Transform *t, const char *subject, size_t n, uint64_t *rng, bint hashed, char *out, size_t room,
) noexcept nogil

# A copy that the caller owns; NULL when out of memory.
cdef Transform *transform_copy(const Transform *t) noexcept nogil


cdef class SubjectTransform:
    cdef Transform *compiled
    cdef readonly bytes src, dest
    cdef tuple stoks
