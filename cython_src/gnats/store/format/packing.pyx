"""Compression of block files; see packing.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EBADMSG, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.codec.s2 cimport (
    S2_BAD,
    S2_NO_MEMORY,
    S2_TOO_LARGE,
    s2_bound,
    s2_decode,
    s2_decoded_size,
    s2_encode,
    s2_error,
)
from gnats.includes.text cimport put_text, starts_with_text
from gnats.includes.varint cimport MAX_VARINT, get_uvarint, put_uvarint
from gnats.store.format.highway cimport HighwayKey
from gnats.store.format.record cimport RECORD_OK, Record, record_decode
from gnats.store.format.region cimport Region, region_memory

cdef extern from * nogil:
    """
    #define GNATS_BLOCK_FILE "cmp"
    """
    const char *FILE_MAGIC "GNATS_BLOCK_FILE"
    enum:
        FILE_MAGIC_N "((int)sizeof(GNATS_BLOCK_FILE) - 1)"

cdef enum:
    LIMIT = 128 * 1024 * 1024     # most bytes that a file may decompress to
    FILE_HEADER = FILE_MAGIC_N + 1    # and the algorithm
    FILE_CHECKSUM = 8
    ALGORITHM_NONE = 0
    ALGORITHM_S2 = 1


cdef inline bint is_compressed(const uint8_t *data, size_t n) noexcept nogil:
    return n > FILE_HEADER and starts_with_text(<const char *> data, n, FILE_MAGIC)


cdef int compress_file(const uint8_t *data, size_t n, uint8_t **out, size_t *size) noexcept nogil:
    """Convert the content of a block file, of at least 8 bytes, into a malloc'd buffer. Return 0 or an S2Error."""
    cdef size_t body = n - FILE_CHECKSUM
    cdef uint8_t *buffer
    cdef uint8_t *p
    cdef int64_t written
    if n < FILE_CHECKSUM:
        return S2_BAD
    buffer = <uint8_t *> malloc(FILE_HEADER + MAX_VARINT + s2_bound(body) + FILE_CHECKSUM)
    if buffer == NULL:
        return S2_NO_MEMORY
    put_text(<char *> buffer, FILE_MAGIC)[0] = ALGORITHM_S2
    p = put_uvarint(buffer + FILE_HEADER, n)
    written = s2_encode(data, body, p)
    if written < 0:
        free(buffer)
        return S2_NO_MEMORY
    p += written
    memcpy(p, data + body, FILE_CHECKSUM)
    out[0] = buffer
    size[0] = <size_t> (p + FILE_CHECKSUM - buffer)
    return 0


cdef int decompress_file(const uint8_t *data, size_t n, uint64_t limit, uint8_t **out, size_t *size) noexcept nogil:
    """Convert back. An uncompressed content of more than `limit` bytes is an error."""
    cdef const uint8_t *p = data + FILE_HEADER
    cdef const uint8_t *end = data + n
    cdef uint64_t said = 0
    cdef int64_t body
    cdef uint8_t *buffer
    cdef int bad
    if not is_compressed(data, n) or not get_uvarint(&p, end, &said) or end - p < FILE_CHECKSUM:
        return S2_BAD
    end -= FILE_CHECKSUM
    if data[3] == ALGORITHM_NONE:
        body = end - p
        if <uint64_t> body > limit:
            return S2_TOO_LARGE
    elif data[3] == ALGORITHM_S2:
        body = s2_decoded_size(p, <size_t> (end - p), limit)
        if body < 0:
            return <int> body
    else:
        return S2_BAD
    buffer = <uint8_t *> malloc(<size_t> body + FILE_CHECKSUM)
    if buffer == NULL:
        return S2_NO_MEMORY
    if data[3] == ALGORITHM_NONE:
        memcpy(buffer, p, body)
    else:
        bad = s2_decode(p, <size_t> (end - p), buffer, body)
        if bad < 0:
            free(buffer)
            return bad
    memcpy(buffer + body, end, FILE_CHECKSUM)
    out[0] = buffer
    size[0] = <size_t> body + FILE_CHECKSUM
    return 0


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


# ---- for Python ----

cdef object taken(int bad, uint8_t *out, size_t size):
    """Return a malloc'd result as bytes and free it, or raise the S2Error `bad`."""
    if bad:
        raise s2_error(bad)
    try:
        return PyBytes_FromStringAndSize(<char *> out, size)
    finally:
        free(out)


def compress_block(bytes data not None) -> bytes:
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef uint8_t *out = NULL
    cdef size_t n = len(data), size = 0
    cdef int bad
    with nogil:
        bad = compress_file(p, n, &out, &size)
    return taken(bad, out, size)


def decompress_block(bytes data not None, uint64_t limit) -> bytes:
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef uint8_t *out = NULL
    cdef size_t n = len(data), size = 0
    cdef int bad
    with nogil:
        bad = decompress_file(p, n, limit, &out, &size)
    return taken(bad, out, size)
