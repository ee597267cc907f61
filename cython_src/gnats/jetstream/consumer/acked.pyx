"""The sequences that acknowledgements let a stream remove; see acked.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcpy


cdef bint acked_reserve(Acked *acked, size_t n) noexcept nogil:
    cdef size_t cap = acked.cap
    cdef uint64_t *grown
    while cap - acked.n < n:
        cap *= 2
    if cap == acked.cap:
        return True
    grown = <uint64_t *> realloc(NULL if acked.seqs == acked.few else acked.seqs, cap * sizeof(uint64_t))
    if grown == NULL:
        return False
    if acked.seqs == acked.few:
        memcpy(grown, acked.few, sizeof(acked.few))
    acked.seqs = grown
    acked.cap = cap
    return True


cdef bint acked_add(Acked *acked, uint64_t seq) noexcept nogil:
    if not acked_reserve(acked, 1):
        return False
    acked.seqs[acked.n] = seq
    acked.n += 1
    return True


cdef int by_seq(const void *a, const void *b) noexcept nogil:
    cdef uint64_t x = (<const uint64_t *> a)[0], y = (<const uint64_t *> b)[0]
    return -1 if x < y else x > y


cdef void acked_sort(Acked *acked) noexcept nogil:
    qsort(acked.seqs, acked.n, sizeof(uint64_t), by_seq)


cdef void acked_free(Acked *acked) noexcept nogil:
    if acked.seqs != acked.few:
        free(acked.seqs)
