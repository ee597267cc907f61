"""Headers of messages as a map of lists; see headermap.pyx."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from gnats.archive.columns cimport Batch


# Add the headers (n bytes; 0: none) of the row that batch_add() is adding. 0 or BATCH_NO_MEMORY.
cdef int add_headers(Batch *b, const uint8_t *hdr, size_t n) noexcept nogil
