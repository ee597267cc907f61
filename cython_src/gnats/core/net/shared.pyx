"""Blocks of bytes that several outbound queues refer to; see shared.pxd."""
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc

from gnats.includes.layout cimport before_data


cdef Shared *shared_new(size_t n) noexcept nogil:
    cdef Shared *block = <Shared *> malloc(before_data(<Shared *> NULL) + n)
    if block != NULL:
        block.users = 1
    return block


cdef void shared_drop(Shared *block) noexcept nogil:
    if block != NULL and drop_user(&block.users):
        free(block)
