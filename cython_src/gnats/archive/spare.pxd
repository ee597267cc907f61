"""Large buffers that are used again: a page of fresh memory costs more than to copy what it will hold.

Buffers go to whoever imports a batch, and come back from any thread. KEPT of them are, while there is a scanner.

Lock: one mutex over what is kept, a leaf.
"""
from libc.stddef cimport size_t

cdef enum:
    LARGE = 1 << 20     # smaller ones are of malloc
    KEPT = 2


cdef void spare_enter() noexcept nogil      # there is a scanner
cdef void spare_leave() noexcept nogil
cdef void *spare_take(size_t *size) noexcept nogil     # of `size` bytes at least; it is set to what there is
cdef void spare_give(void *at, size_t size) noexcept nogil
