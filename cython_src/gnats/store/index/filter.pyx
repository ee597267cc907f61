"""Filters; see filter.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memchr, memcpy

from gnats.core.subjects.subject cimport subject_has_wildcard
from gnats.store.index.filterorder cimport find_stars, has_full, narrow, rank_at, rank_of
from gnats.store.index.stree cimport STreeFilter


cdef Filter *filter_make(subjects) except? NULL:
    cdef list names = [s.encode() if isinstance(s, str) else bytes(s) for s in subjects]
    cdef Filter *f
    cdef char *p
    cdef bytes name
    cdef uint32_t i
    if not names:
        return NULL
    f = <Filter *> calloc(1, sizeof(Filter) + len(names) * (sizeof(STreeFilter) + 1) + sum(map(len, names)))
    if f == NULL:
        raise MemoryError
    f.subjects = <STreeFilter *> (f + 1)
    f.n = <uint32_t> len(names)
    f.wild = <uint8_t *> (f.subjects + f.n)
    p = <char *> (f.wild + f.n)
    for i, name in enumerate(names):
        f.subjects[i].at = p
        f.subjects[i].n = <uint32_t> len(name)
        f.all = f.all or name == b">" or not name
        memcpy(p, <const char *> name, len(name))
        p += len(name)
    sort_filters(f.subjects, f.n)
    for i in range(f.n):
        f.wild[i] = subject_has_wildcard(f.subjects[i].at, f.subjects[i].n)
    return f


cdef void filter_free(Filter *f) noexcept nogil:
    free(f)


cdef int compare_filters(const void *a, const void *b) noexcept nogil:
    cdef const STreeFilter *x = <const STreeFilter *> a
    cdef const STreeFilter *y = <const STreeFilter *> b
    cdef size_t i = 0
    cdef uint32_t rx, ry
    while i < x.n and i < y.n and x.at[i] == y.at[i]:
        i += 1
    rx = rank_at(x, i)
    ry = rank_at(y, i)
    return <int> (rx > ry) - <int> (rx < ry)


cdef void sort_filters(STreeFilter *filters, uint32_t n) noexcept nogil:
    qsort(filters, n, sizeof(STreeFilter), compare_filters)


cdef bint match_filters(
    const STreeFilter *filters, uint32_t first, uint32_t end, size_t i, const char *subject, size_t n
) noexcept nogil:
    cdef const char *dot
    cdef uint32_t star, star_end
    cdef size_t token_n, k
    while first < end:
        # Here a token begins: of the subject at 0, of the filters at i.
        if has_full(filters, first, end, i):
            return n != 0
        dot = <const char *> memchr(subject, c'.', n)
        token_n = <size_t> (dot - subject) if dot != NULL else n
        star = first
        star_end = end
        if token_n and find_stars(filters, &star, &star_end, i):
            if dot == NULL:
                if filters[star].n == i + 1:
                    return True
            elif narrow(filters, &star, &star_end, i + 1, rank_of(c'.')) and match_filters(
                    filters, star, star_end, i + 2, dot + 1, n - token_n - 1):
                return True
        for k in range(token_n):
            if not narrow(filters, &first, &end, i, rank_of(subject[k])):
                return False
            i += 1
        if dot == NULL:
            return filters[first].n == i
        if not narrow(filters, &first, &end, i, rank_of(c'.')):
            return False
        i += 1
        subject = dot + 1
        n -= token_n + 1
    return False
