"""Totals of subjects; see subjects.pxd (SubjectsTotals of filestore.go)."""
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcmp, memcpy, memset

from gnats.includes.arrays cimport array_grow
from gnats.store.index.stree cimport STreeIter, SimpleState, stree_end, stree_next
from gnats.store.queries cimport iter_filter


cdef bint collect_totals(StoreBase s, const Filter *f, Totals *t) noexcept nogil:
    cdef STreeIter it
    cdef Total *one
    cdef bint ok = True
    iter_filter(&it, s, f)
    while ok and stree_next(&it):
        if t.n == t.room:
            ok = array_grow(&t.all, &t.room, 256, sizeof(Total))
        while ok and t.text_room - t.text_n < it.subject_n:
            ok = array_grow(&t.text, &t.text_room, 16384, 1)
        if ok:
            one = &t.all[t.n]
            one.msgs = (<SimpleState *> it.value).msgs
            one.at = t.text_n
            one.n = <uint32_t> it.subject_n
            memcpy(t.text + t.text_n, it.subject, it.subject_n)
            t.text_n += it.subject_n
            t.n += 1
    stree_end(&it)
    return ok


cdef int compare_totals(const void *a, const void *b) noexcept nogil:
    cdef const Total *x = <const Total *> a
    cdef const Total *y = <const Total *> b
    cdef int order = memcmp(x.subject, y.subject, min(x.n, y.n))
    return order if order else (x.n > y.n) - (x.n < y.n)


cdef void sort_totals(Totals *t) noexcept nogil:
    cdef size_t i
    for i in range(t.n):
        t.all[i].subject = t.text + t.all[i].at
    if t.n:
        qsort(t.all, t.n, sizeof(Total), compare_totals)


cdef void free_totals(Totals *t) noexcept nogil:
    free(t.all)
    free(t.text)
    memset(t, 0, sizeof(Totals))
