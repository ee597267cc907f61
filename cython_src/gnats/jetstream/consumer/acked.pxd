"""The sequences that acknowledgements let a stream remove, gathered under the consumer's lock for its release."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

cdef enum:
    FEW_ACKED = 8


cdef struct Acked:
    uint64_t *seqs           # `few`, or memory of its own
    size_t n, cap
    uint64_t few[FEW_ACKED]


cdef inline void acked_init(Acked *acked) noexcept nogil:
    acked.seqs = acked.few
    acked.n = 0
    acked.cap = FEW_ACKED


# Make room for n more. False when out of memory.
cdef bint acked_reserve(Acked *acked, size_t n) noexcept nogil
cdef bint acked_add(Acked *acked, uint64_t seq) noexcept nogil
# Order the sequences as the stream has them.
cdef void acked_sort(Acked *acked) noexcept nogil
cdef void acked_free(Acked *acked) noexcept nogil
