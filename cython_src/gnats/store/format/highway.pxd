"""HighwayHash-64, the checksum of all files of a store.

A key is the SHA-256 of a name: the stream's for its metadata and index.db, `<stream>-<block index>` for the records of
a block, `<stream>/<consumer>` for a consumer's metadata. A checksum is stored little endian.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef struct HighwayKey:
    uint64_t lanes[16]      # the state before the first byte; each hash starts with a copy


cdef struct HighwayState:
    uint64_t lanes[16]
    uint8_t packet[32]      # the bytes of a packet that is not full yet
    uint32_t held           # how many


cdef struct HighwayPiece:
    const void *at
    size_t n


cdef void highway_key(HighwayKey *key, const uint8_t *secret) noexcept nogil         # secret: 32 bytes
cdef void highway_key_of(HighwayKey *key, const char *name, size_t n) noexcept nogil    # the key of a name
cdef void sha256_of(uint8_t *digest, const char *name, size_t n) noexcept nogil      # digest: 32 bytes

cdef uint64_t highway(const HighwayKey *key, const void *data, size_t n) noexcept nogil
# Hash 16 bytes at head followed by n bytes at data.
cdef uint64_t highway_headed(const HighwayKey *key, const void *head, const void *data, size_t n) noexcept nogil
# Hash the pieces one after the other.
cdef uint64_t highway_pieces(const HighwayKey *key, const HighwayPiece *pieces, int n) noexcept nogil

cdef void highway_init(HighwayState *s, const HighwayKey *key) noexcept nogil
cdef void highway_update(HighwayState *s, const void *data, size_t n) noexcept nogil
cdef uint64_t highway_finish(const HighwayState *s) noexcept nogil    # leaves s as it is: more updates may follow
