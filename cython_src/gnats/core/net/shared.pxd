"""Blocks of bytes that several outbound queues refer to, with a count of their users.

The thread that makes a block writes its bytes before it gives the block to another thread; no thread writes them
afterwards. Any thread may then take and drop references. The thread that drops the last one frees the block.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

cdef extern from * nogil:
    """
    #define gnats_shared_hold(p) ((void)__atomic_fetch_add((p), 1, __ATOMIC_RELAXED))
    /* The last user frees: it must see that all others have read. */
    #define gnats_shared_drop(p) (__atomic_fetch_sub((p), 1, __ATOMIC_ACQ_REL) == 1)
    """
    void count_user "gnats_shared_hold"(uint64_t *p)
    bint drop_user "gnats_shared_drop"(uint64_t *p)


cdef struct Shared:
    uint64_t users   # references; atomic
    char data[1]


# Make a block for n bytes, with one reference: the caller's. NULL without memory.
cdef Shared *shared_new(size_t n) noexcept nogil
# Drop a reference; NULL: do nothing.
cdef void shared_drop(Shared *block) noexcept nogil


cdef inline Shared *shared_hold(Shared *block) noexcept nogil:
    """Take one more reference. The caller has one already, or another holder keeps its own during the call."""
    count_user(&block.users)
    return block
