"""Reuse of large buffers: to fault in a page of fresh memory costs more than to copy the data that it will hold.

The importer of a batch gets the batch's buffers and gives them back from any thread. At most KEPT of them are kept,
and only while a scanner exists.

Lock: one mutex guards the buffers that are kept (a leaf).
"""
from libc.stddef cimport size_t

cdef enum:
    LARGE = 1 << 20     # bytes; smaller buffers come from malloc
    KEPT = 2


# Count the scanners: call when one is made, and when it ends. The last one to end frees the buffers that are kept.
cdef void spare_enter() noexcept nogil
cdef void spare_leave() noexcept nogil
# Return a buffer of at least *size bytes and set *size to its size. NULL: no memory.
cdef void *spare_take(size_t *size) noexcept nogil
# Give back a buffer with the size that spare_take() set.
cdef void spare_give(void *at, size_t size) noexcept nogil
