"""Filters: a set of subjects with wildcards, compiled once. A NULL filter matches every subject."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

from gnats.core.subjects.subject cimport match_literal, same_bytes
from gnats.store.index.stree cimport STreeFilter

cdef enum:
    FEW_FILTERS = 4   # filter_match() tries each of so many


cdef struct Filter:
    STreeFilter *subjects    # in the order of sort_filters()
    uint8_t *wild     # wild[i]: subject i has wildcards
    uint32_t n
    bint all          # one of them is `>`


# Make a filter of a sequence of str or bytes; NULL for an empty one. Raises MemoryError. One malloc'd block holds the
# filter and its subjects: the owner frees it with filter_free(), or retires it.
cdef Filter *filter_make(subjects) except? NULL
cdef void filter_free(Filter *f) noexcept nogil

# Puts filters in the order of gnats.store.index.filterorder.
cdef void sort_filters(STreeFilter *filters, uint32_t n) noexcept nogil
# Does one of the sorted filters [first:end] match a literal subject? They have the same i bytes, which a token follows,
# and which have matched what was before this subject. (At first: 0, n, 0.)
cdef bint match_filters(const STreeFilter *filters, uint32_t first, uint32_t end, size_t i, const char *subject,
                        size_t n) noexcept nogil


cdef inline bint filter_match(const Filter *f, const char *subject, size_t n) noexcept nogil:
    cdef uint32_t i
    cdef const STreeFilter *s
    if f == NULL or f.all:
        return True
    if f.n > FEW_FILTERS:
        return match_filters(f.subjects, 0, f.n, 0, subject, n)
    for i in range(f.n):
        s = &f.subjects[i]
        if f.wild[i]:
            if match_literal(subject, n, s.at, s.n):
                return True
        elif s.n == n and same_bytes(s.at, subject, n):
            return True
    return False
