"""Filters: a set of subjects with wildcards, compiled once. A NULL filter matches every subject."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.subjects.subject cimport match_literal, same_bytes
from gnats.store.index.stree cimport STreeFilter


cdef struct Filter:
    STreeFilter *subjects
    uint8_t *wild     # wild[i]: subject i has wildcards
    uint32_t n
    bint all          # one of them is `>`


# Make a filter of a sequence of str or bytes; NULL for an empty one. Raises MemoryError. One malloc'd block holds the
# filter and its subjects: the owner frees it with filter_free(), or retires it.
cdef Filter *filter_make(subjects) except? NULL
cdef void filter_free(Filter *f) noexcept nogil


cdef inline bint filter_match(const Filter *f, const char *subject, size_t n) noexcept nogil:
    cdef uint32_t i
    cdef const STreeFilter *s
    if f == NULL or f.all:
        return True
    for i in range(f.n):
        s = &f.subjects[i]
        if f.wild[i]:
            if match_literal(subject, n, s.at, s.n):
                return True
        elif s.n == n and same_bytes(s.at, subject, n):
            return True
    return False
