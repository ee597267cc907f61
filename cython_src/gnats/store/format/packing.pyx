"""Compression of block files; see packing.pxd."""
from libc.errno cimport EBADMSG, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.store.format.highway cimport HighwayKey
from gnats.store.format.record cimport RECORD_OK, Record, record_decode
from gnats.store.format.region cimport Region, region_memory
from gnats.store.format.s2 cimport S2_NO_MEMORY, compress_file, decompress_file, is_compressed

cdef enum:
    LIMIT = 128 * 1024 * 1024     # most bytes that a file may decompress to


cdef Region *unpack_records(
    const HighwayKey *key, const char *raw, size_t n, size_t least, uint64_t *records, int *err,
) noexcept nogil:
    cdef Record first
    cdef Region *r
    cdef uint8_t *data = NULL
    cdef size_t size = n
    cdef int rc
    # The length of a record of 7368035 or 24145251 bytes reads like the beginning of a compressed file.
    if is_compressed(<const uint8_t *> raw, n) and record_decode(raw, n, key, &first) != RECORD_OK:
        rc = decompress_file(<const uint8_t *> raw, n, LIMIT, &data, &size)
        if rc != 0:
            err[0] = ENOMEM if rc == S2_NO_MEMORY else EBADMSG
            return NULL
        raw = <const char *> data
    r = region_memory(max(size, least))
    if r == NULL:
        err[0] = ENOMEM
    else:
        memcpy(r.base, raw, size)
        records[0] = size
    free(data)
    return r


cdef char *pack_records(const char *records, size_t n, bint compress, size_t *packed_n) noexcept nogil:
    cdef uint8_t *packed = NULL
    if compress and n > 8:
        if compress_file(<const uint8_t *> records, n, &packed, packed_n) != 0:
            return NULL
        return <char *> packed
    packed = <uint8_t *> malloc(n + 1)
    if packed != NULL:
        memcpy(packed, records, n)
        packed_n[0] = n
    return <char *> packed
