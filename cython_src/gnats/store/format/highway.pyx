"""HighwayHash-64; see highway.pxd. The arithmetic is in includes/highway.h."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from "gnats/includes/highway.h" nogil:
    void hh_key(uint64_t *lanes, const uint8_t *key)
    void hh_packets(uint64_t *lanes, const uint8_t *p, size_t n)
    uint64_t hh_finish(const uint64_t *lanes, const uint8_t *rest, size_t n)
    uint64_t hh_once(const uint64_t *lanes, const uint8_t *p, size_t n)
    uint64_t hh_headed(const uint64_t *lanes, const uint8_t *head, const uint8_t *p, size_t n)
    void hh_detect(int allowed)
    int hh_wide
    void sha256(uint8_t *digest, const uint8_t *p, size_t n)

cdef enum:
    PACKET = 32
    GATHERED = 512     # copy pieces of up to so many bytes together: one pass over the state is cheaper than several

hh_detect(1)


cdef void highway_key(HighwayKey *key, const uint8_t *secret) noexcept nogil:
    hh_key(key.lanes, secret)


cdef void sha256_of(uint8_t *digest, const char *name, size_t n) noexcept nogil:
    sha256(digest, <const uint8_t *> name, n)


cdef void highway_key_of(HighwayKey *key, const char *name, size_t n) noexcept nogil:
    cdef uint8_t digest[32]
    sha256(digest, <const uint8_t *> name, n)
    hh_key(key.lanes, digest)


cdef uint64_t highway(const HighwayKey *key, const void *data, size_t n) noexcept nogil:
    return hh_once(key.lanes, <const uint8_t *> data, n)


cdef uint64_t highway_headed(const HighwayKey *key, const void *head, const void *data, size_t n) noexcept nogil:
    return hh_headed(key.lanes, <const uint8_t *> head, <const uint8_t *> data, n)


cdef uint64_t highway_pieces(const HighwayKey *key, const HighwayPiece *pieces, int n) noexcept nogil:
    cdef uint8_t together[GATHERED]
    cdef HighwayState s
    cdef size_t size = 0
    cdef int i
    for i in range(n):
        if pieces[i].n > GATHERED - size:
            break
        memcpy(together + size, pieces[i].at, pieces[i].n)
        size += pieces[i].n
    else:
        return hh_once(key.lanes, together, size)
    highway_init(&s, key)
    highway_update(&s, together, size)
    for i in range(i, n):
        highway_update(&s, pieces[i].at, pieces[i].n)
    return highway_finish(&s)


cdef void highway_init(HighwayState *s, const HighwayKey *key) noexcept nogil:
    memcpy(s.lanes, key.lanes, sizeof(s.lanes))
    s.held = 0


cdef void highway_update(HighwayState *s, const void *data, size_t n) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *> data
    cdef size_t part
    if s.held:
        part = min(n, <size_t> PACKET - s.held)
        memcpy(s.packet + s.held, p, part)
        s.held += <uint32_t> part
        p += part
        n -= part
        if s.held < PACKET:
            return
        hh_packets(s.lanes, s.packet, PACKET)
        s.held = 0
    part = n & ~<size_t> (PACKET - 1)
    if part:
        hh_packets(s.lanes, p, part)
    if n > part:
        memcpy(s.packet, p + part, n - part)
        s.held = <uint32_t> (n - part)


cdef uint64_t highway_finish(const HighwayState *s) noexcept nogil:
    return hh_finish(s.lanes, s.packet, s.held)


cdef inline bytes stored(uint64_t sum64):
    return PyBytes_FromStringAndSize(<const char *> &sum64, sizeof(sum64))


cdef class HighwayHash:
    """HighwayHash-64 under a key of 32 bytes, with the interface of hashlib's objects."""
    cdef HighwayState state

    def __init__(self, const uint8_t[::1] key not None):
        cdef HighwayKey lanes
        if key.shape[0] != 32:
            raise ValueError(f"a key has 32 bytes, not {key.shape[0]}")
        highway_key(&lanes, &key[0])
        highway_init(&self.state, &lanes)

    def update(self, const uint8_t[::1] data not None) -> None:
        if data.shape[0]:
            highway_update(&self.state, &data[0], data.shape[0])

    def digest(self) -> bytes:
        """Return the 8 bytes of the hash, as they are stored."""
        return stored(highway_finish(&self.state))


def checksum(bytes name not None, *pieces) -> bytes:
    """Return the 8 bytes of the checksum of the joined `pieces`, under the key of a name."""
    cdef HighwayKey key
    cdef HighwayState s
    cdef const uint8_t[::1] data
    highway_key_of(&key, name, len(name))
    highway_init(&s, &key)
    for data in pieces:
        if data.shape[0]:
            highway_update(&s, &data[0], data.shape[0])
    return stored(highway_finish(&s))


def gathered(bytes name not None, *pieces) -> bytes:
    """Compute checksum() by the function for records; at most 8 pieces (for tests)."""
    cdef HighwayKey key
    cdef HighwayPiece at[8]
    cdef bytes piece
    cdef int i
    if len(pieces) > 8:
        raise ValueError("more than 8 pieces")
    highway_key_of(&key, name, len(name))
    for i in range(len(pieces)):
        piece = pieces[i]    # at[] borrows its memory: the tuple keeps it alive
        at[i].at = PyBytes_AS_STRING(piece)
        at[i].n = len(piece)
    return stored(highway_pieces(&key, at, len(pieces)))


def key_of(bytes name not None) -> bytes:
    """Return the key of a name: 32 bytes."""
    cdef uint8_t digest[32]
    sha256_of(digest, name, len(name))
    return PyBytes_FromStringAndSize(<const char *> digest, sizeof(digest))


def use_wide(allowed: bool) -> bool:
    """Allow or forbid AVX2; return whether it was used before (for tests with one thread)."""
    before = bool(hh_wide)
    hh_detect(allowed)
    return before
