"""HighwayHash-64, the checksum of everything a store writes.

A key is the SHA-256 of a name: of the stream for its metadata and its index, of `<stream>-<block index>` for the
records of a block, of `<stream>/<consumer>` for a consumer's metadata. A checksum is stored little endian.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct HighwayKey:
    uint64_t lanes[16]      # the state before the first byte; to start over is to copy it


cdef struct HighwayState:
    uint64_t lanes[16]
    uint8_t packet[32]      # bytes that do not fill a packet yet
    uint32_t held


cdef struct HighwayPiece:
    const void *at
    size_t n


cdef void highway_key(HighwayKey *key, const uint8_t *secret) noexcept nogil         # of 32 bytes
cdef void highway_key_of(HighwayKey *key, const char *name, size_t n) noexcept nogil
cdef void sha256_of(uint8_t *digest, const char *name, size_t n) noexcept nogil      # 32 bytes

cdef uint64_t highway(const HighwayKey *key, const void *data, size_t n) noexcept nogil
# of 16 bytes and n more as if they were one
cdef uint64_t highway_headed(const HighwayKey *key, const void *head, const void *data, size_t n) noexcept nogil
# of several pieces as if they were one
cdef uint64_t highway_pieces(const HighwayKey *key, const HighwayPiece *pieces, int n) noexcept nogil

cdef void highway_init(HighwayState *s, const HighwayKey *key) noexcept nogil
cdef void highway_update(HighwayState *s, const void *data, size_t n) noexcept nogil
cdef uint64_t highway_finish(const HighwayState *s) noexcept nogil    # more may follow
