"""Between the records of a block and its file: compression (filestore.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from gnats.store.highway cimport HighwayKey
from gnats.store.region cimport Region

# The records in the content of a block's file, which may be compressed, in a region of `least` bytes at least. NULL:
# *err is EBADMSG or ENOMEM.
cdef Region *unpack_records(
    const HighwayKey *key, const char *raw, size_t n, size_t least, uint64_t *records, int *err) noexcept nogil
# A copy of the records, compressed if `compress`; malloc'd. NULL: no memory.
cdef char *pack_records(const char *records, size_t n, bint compress, size_t *packed_n) noexcept nogil
