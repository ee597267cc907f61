"""Filters; see filter.pxd."""
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from gnats.core.subjects.subject cimport subject_has_wildcard
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
        f.wild[i] = subject_has_wildcard(name, len(name))
        f.all = f.all or name == b">" or not name
        memcpy(p, <const char *> name, len(name))
        p += len(name)
    return f


cdef void filter_free(Filter *f) noexcept nogil:
    free(f)
