"""The order of filters in which those that begin with the same bytes are together, and how to find some of them.

Filters are in the order of their bytes, where the dot comes first: so those with the token `*` in one place are
together, too. sort_filters() of gnats.store.index.filter makes the order. A range [first:end] of filters that agree in
their first bytes is followed as one, by the subject tree and by match_filters().
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t


cdef struct STreeFilter:
    const char *at           # a valid subject, wildcards allowed
    size_t n


cdef inline uint32_t rank_of(char c) noexcept nogil:
    """Return the place of a byte in the order of filters: 0 is the end of a filter, then comes the dot."""
    return 1 if c == c'.' else <uint32_t> <uint8_t> c + 2


cdef inline uint32_t rank_at(const STreeFilter *f, size_t i) noexcept nogil:
    return rank_of(f.at[i]) if i < f.n else 0


cdef inline uint32_t seek(
    const STreeFilter *filters, uint32_t first, uint32_t end, size_t i, uint32_t rank
) noexcept nogil:
    """Return the first of the filters [first:end], which agree in i bytes, whose next byte has the rank or more."""
    cdef uint32_t mid
    if first == end or rank_at(&filters[first], i) >= rank:
        return first
    if rank_at(&filters[end - 1], i) < rank:
        return end
    while first < end:
        mid = first + (end - first) // 2
        if rank_at(&filters[mid], i) < rank:
            first = mid + 1
        else:
            end = mid
    return first


cdef inline bint narrow(
    const STreeFilter *filters, uint32_t *first, uint32_t *end, size_t i, uint32_t rank
) noexcept nogil:
    """Keep those of the filters whose next byte has the rank. False: there are none."""
    first[0] = seek(filters, first[0], end[0], i, rank)
    end[0] = seek(filters, first[0], end[0], i, rank + 1)
    return first[0] < end[0]


cdef inline bint begins_token(const STreeFilter *f, size_t i) noexcept nogil:
    return i == 0 or f.at[i - 1] == c'.'


cdef inline bint has_full(const STreeFilter *filters, uint32_t first, uint32_t end, size_t i) noexcept nogil:
    """Does one of the filters end with the token `>` at i, where a token begins?"""
    cdef uint32_t k = seek(filters, first, end, i, rank_of(c'>'))
    return k < end and filters[k].n == i + 1 and filters[k].at[i] == c'>'


cdef inline bint find_stars(
    const STreeFilter *filters, uint32_t *first, uint32_t *end, size_t i
) noexcept nogil:
    """Keep those of the filters that have the token `*` at i, where a token begins. False: there are none."""
    if not narrow(filters, first, end, i, rank_of(c'*')):
        return False
    end[0] = seek(filters, first[0], end[0], i + 1, rank_of(c'.') + 1)
    return first[0] < end[0]
