"""Compression of block files (filestore.go).

A compressed file is `cmp`, a byte for the algorithm, the uncompressed size, an S2 stream of all but the last 8 bytes,
and these 8 bytes uncompressed: the checksum of the last record.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t

from gnats.store.format.highway cimport HighwayKey
from gnats.store.format.region cimport Region

# Copy the records of a block file's content, compressed or not, into a new region of at least `least` bytes; *records
# is their size. NULL: *err is EBADMSG or ENOMEM.
cdef Region *unpack_records(
    const HighwayKey *key, const char *raw, size_t n, size_t least, uint64_t *records, int *err) noexcept nogil
# Return a malloc'd copy of the records, compressed if `compress`, of *packed_n bytes. NULL: no memory.
cdef char *pack_records(const char *records, size_t n, bint compress, size_t *packed_n) noexcept nogil
