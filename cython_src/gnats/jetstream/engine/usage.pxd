"""The bytes of memory and files that the streams of an account or of a server use, and their limits."""
from libc.stdint cimport int64_t, uint64_t

from gnats.includes.atomics cimport addi64, loadi64


cdef class Usage:
    # Bytes; limits: -1 for none. Atomic: any thread that changes a stream adds, the control loop sets limits.
    cdef int64_t memory, storage, max_memory, max_storage


cdef inline void usage_add(Usage u, bint memory, int64_t n) noexcept nogil:
    addi64(&u.memory if memory else &u.storage, n)


cdef inline bint usage_exceeds(Usage u, bint memory, int64_t more) noexcept nogil:
    """Return whether `more` bytes would exceed the limit."""
    cdef int64_t most = loadi64(&u.max_memory) if memory else loadi64(&u.max_storage)
    return most >= 0 and (loadi64(&u.memory) if memory else loadi64(&u.storage)) + more > most
