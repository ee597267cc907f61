"""The bytes that streams use; see usage.pxd."""
from libc.stdint cimport int64_t

from gnats.includes.atomics cimport loadi64, storei64


cdef class Usage:
    """Bytes that streams use, counted by the streams. Limits are bytes, -1 for none."""

    def __cinit__(self, *, int64_t max_memory=-1, int64_t max_storage=-1):
        self.max_memory = max_memory
        self.max_storage = max_storage

    @property
    def memory(self) -> int:
        """Bytes in memory."""
        return loadi64(&self.memory)

    @property
    def storage(self) -> int:
        """Bytes in files."""
        return loadi64(&self.storage)

    def add(self, bint memory, int64_t n) -> None:
        """Count n bytes (may be negative) that do not belong to a stream yet."""
        usage_add(self, memory, n)

    @property
    def max_memory(self) -> int:
        return loadi64(&self.max_memory)

    @max_memory.setter
    def max_memory(self, int64_t n):
        storei64(&self.max_memory, n)

    @property
    def max_storage(self) -> int:
        return loadi64(&self.max_storage)

    @max_storage.setter
    def max_storage(self, int64_t n):
        storei64(&self.max_storage, n)
