"""S2 compression of blocks: the format of klauspost/compress, an extension of Snappy's.

A stream is chunks: its identifier, then blocks with a masked CRC-32C of what they stand for, compressed or not. What is
read is untrusted: the size of what it stands for is added up, against a limit, before memory is taken for it.

A block file that is compressed is `cmp`, the algorithm, its uncompressed size, a stream of all but its last 8 bytes,
and these bytes, the checksum of its last record, as they are.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    S2_BLOCK = 1 << 20         # as written
    S2_MAX_BLOCK = 4 << 20     # as read
    S2_TABLE_BITS = 15         # 2**15 uint32_t to compress with
    S2_CHUNK_HEADER = 4
    S2_IDENTIFIER = 10         # bytes of the chunk that a stream begins with

cdef enum S2Error:
    S2_BAD = -1                # not the format, or another checksum
    S2_NO_MEMORY = -2
    S2_TOO_LARGE = -3          # over the limit


# What a stream stands for: bytes, or an S2Error.
cdef int64_t s2_decoded_size(const uint8_t *data, size_t n, uint64_t limit) noexcept nogil
# Into exactly s2_decoded_size() bytes: 0 or S2_BAD.
cdef int s2_decode(const uint8_t *data, size_t n, uint8_t *out, size_t size) noexcept nogil
cdef int s2_decode_block(const uint8_t *data, size_t n, uint8_t *out, size_t size) noexcept nogil

# At most s2_bound() bytes; the bytes written, or S2_NO_MEMORY.
cdef size_t s2_bound(size_t n) noexcept nogil
cdef int64_t s2_encode(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil

# A stream in pieces. The identifier; then chunks for at most S2_BLOCK bytes, written to s2_bound() bytes: how many.
cdef void s2_put_identifier(uint8_t *out) noexcept nogil
cdef size_t s2_put_chunk(const uint8_t *data, size_t n, uint8_t *out, uint32_t *table) noexcept nogil


cdef struct S2Chunk:
    int type
    const uint8_t *body       # behind the CRC of a block
    size_t n
    uint64_t size             # what a block stands for, at most S2_MAX_BLOCK; 0: nothing
    uint32_t crc


# The chunk at *at, all of which is there: 1, 0 at the end, or S2_BAD. `first`: it must be the identifier.
cdef int s2_next_chunk(const uint8_t **at, const uint8_t *end, bint first, S2Chunk *c) noexcept nogil
cdef int s2_decode_chunk(const S2Chunk *c, uint8_t *out) noexcept nogil      # into c.size bytes: 0 or S2_BAD

cdef bint is_compressed(const uint8_t *data, size_t n) noexcept nogil
# A whole block file, of 8 bytes at least, into a malloc'd buffer: 0 or an S2Error.
cdef int compress_file(const uint8_t *data, size_t n, uint8_t **out, size_t *size) noexcept nogil
cdef int decompress_file(const uint8_t *data, size_t n, uint64_t limit, uint8_t **out, size_t *size) noexcept nogil
