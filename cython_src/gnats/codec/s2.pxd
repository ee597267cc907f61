"""S2 compression: the format of klauspost/compress, an extension of Snappy's.

An S2 stream is a sequence of chunks: an identifier, then blocks, compressed or not, each with a masked CRC-32C of its
uncompressed data. Decoding treats its input as untrusted: it adds up the uncompressed size and compares it with a limit
before it allocates memory.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    S2_BLOCK = 1 << 20         # most uncompressed bytes of a block that is written
    S2_MAX_BLOCK = 4 << 20     # most uncompressed bytes of a block that is read
    S2_TABLE_BITS = 15         # the compressor's hash table has 2**15 uint32_t; a short block uses fewer
    S2_CHUNK_HEADER = 4        # bytes
    S2_IDENTIFIER = 10         # bytes of the chunk with which a stream begins
    S2_BEGIN = 0xff            # the first byte of a stream: the type of the identifier
    S2_MAX_CHUNK = S2_MAX_BLOCK + 64   # bytes; an encoder need not make a block larger than its data by more than this

cdef enum S2Error:
    S2_BAD = -1                # not the format, or a wrong checksum
    S2_NO_MEMORY = -2
    S2_TOO_LARGE = -3          # over the limit


# Return the uncompressed size of a stream in bytes, or an S2Error.
cdef int64_t s2_decoded_size(const uint8_t *data, size_t n, uint64_t limit) noexcept nogil
# Decode a stream (or one block) to exactly `size` bytes: for a stream, s2_decoded_size(). 0 or S2_BAD.
cdef int s2_decode(const uint8_t *data, size_t n, uint8_t *out, size_t size) noexcept nogil
cdef int s2_decode_block(const uint8_t *data, size_t n, uint8_t *out, size_t size) noexcept nogil

# Encode a stream of at most s2_bound() bytes. Return the bytes written, or S2_NO_MEMORY.
cdef size_t s2_bound(size_t n) noexcept nogil
cdef int64_t s2_encode(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil
# The same for one block, of any size, that is no part of a stream.
cdef int64_t s2_encode_block(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil

# Encode a stream in pieces: the identifier, then chunks of at most S2_BLOCK bytes of data each, with room of s2_bound()
# bytes in `out`. s2_put_chunk() returns the bytes written.
cdef void s2_put_identifier(uint8_t *out) noexcept nogil
cdef size_t s2_put_chunk(const uint8_t *data, size_t n, uint8_t *out, uint32_t *table) noexcept nogil
cdef size_t s2_put_uncompressed(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil


cdef struct S2Chunk:
    int type
    const uint8_t *body       # after the CRC of a block
    size_t n
    uint64_t size             # uncompressed bytes of a block, at most S2_MAX_BLOCK; 0: no block
    uint32_t crc


# Return the size of the chunk that begins at `data`, of which n bytes have come; 0: too few to say it; S2_BAD:
# its type is unknown, or it is larger than S2_MAX_CHUNK, and it cannot be skipped.
cdef int64_t s2_chunk_size(const uint8_t *data, size_t n) noexcept nogil
# Return whether the chunk that begins at `data` has nothing to decode, or to check.
cdef bint s2_skippable(const uint8_t *data) noexcept nogil
# Get the chunk at *at and advance *at. 1; 0: the end; S2_BAD, also for an incomplete chunk. `first`: the chunk must
# be the identifier.
cdef int s2_next_chunk(const uint8_t **at, const uint8_t *end, bint first, S2Chunk *c) noexcept nogil
cdef int s2_decode_chunk(const S2Chunk *c, uint8_t *out) noexcept nogil      # to c.size bytes; 0 or S2_BAD

# Return the exception for an S2Error.
cdef object s2_error(int64_t bad)
