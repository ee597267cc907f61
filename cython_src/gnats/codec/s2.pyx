"""S2 compression; see s2.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove, memset

from gnats.includes.crc32c cimport crc32c, crc32c_prepare, crc32c_ready
from gnats.includes.layout cimport static_assert
from gnats.includes.varint cimport get_uvarint, put_uvarint

cdef extern from * nogil:
    """
    #define GNATS_S2_IDENTIFIER "\\xff\\x06\\x00\\x00" "S2sTwO"
    #define GNATS_SNAPPY_IDENTIFIER "\\xff\\x06\\x00\\x00" "sNaPpY"
    """
    int trailing_zeros "__builtin_ctzll"(uint64_t v)
    const uint8_t *IDENTIFIER "((const uint8_t *)GNATS_S2_IDENTIFIER)"
    const uint8_t *SNAPPY "((const uint8_t *)GNATS_SNAPPY_IDENTIFIER)"
    enum:
        IDENTIFIER_N "((int)sizeof(GNATS_S2_IDENTIFIER) - 1)"
        SNAPPY_N "((int)sizeof(GNATS_SNAPPY_IDENTIFIER) - 1)"

cdef enum:
    CHUNK_COMPRESSED = 0x00
    CHUNK_UNCOMPRESSED = 0x01
    CHUNK_SKIPPABLE = 0x80     # skip unknown types from here on; lower unknown types are errors
    CRC = 4
    SMALLEST = 32              # fewest bytes that are searched for matches
    SMALLEST_TABLE = 8         # bits
    MARGIN = 16                # bytes after a position that the search may read
    WIDE = 16                  # bytes of one move; fewer take a call
    TAG_LITERAL = 0
    TAG_COPY_1 = 1
    TAG_COPY_2 = 2
    TAG_COPY_4 = 3

static_assert(IDENTIFIER_N == S2_IDENTIFIER)
static_assert(SNAPPY_N == S2_IDENTIFIER)

crc32c_prepare(1)


cdef inline uint32_t load32(const uint8_t *p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint64_t load64(const uint8_t *p) noexcept nogil:
    cdef uint64_t v
    memcpy(&v, p, 8)
    return v


cdef inline uint32_t masked_crc(const uint8_t *p, size_t n) noexcept nogil:
    cdef uint32_t crc = crc32c(p, n)
    return (crc >> 15 | crc << 17) + <uint32_t> 0xa282ead8


# ---- decoding ----

cdef inline void copy_within(uint8_t *to, size_t offset, size_t n, const uint8_t *end) noexcept nogil:
    """Copy n bytes from `offset` bytes before `to`. The ranges may overlap: the copy then repeats its own bytes."""
    cdef const uint8_t *source = to - offset
    if offset >= WIDE and <size_t> (end - to) >= n + WIDE:
        # Copy beyond the end if need be: the bytes after it are written later.
        while True:
            memcpy(to, source, WIDE)
            if n <= WIDE:
                return
            to += WIDE
            source += WIDE
            n -= WIDE
    elif offset >= n:
        memcpy(to, source, n)
    elif offset == 1:
        memset(to, source[0], n)
    else:
        while n:
            to[0] = source[0]
            to += 1
            source += 1
            n -= 1


cdef int s2_decode_block(const uint8_t *data, size_t n, uint8_t *out, size_t size) noexcept nogil:
    cdef const uint8_t *p = data
    cdef const uint8_t *end = data + n
    cdef uint8_t *to = out
    cdef uint8_t *out_end = out + size
    cdef uint64_t said = 0
    cdef size_t length, offset = 0, extra
    cdef uint32_t tag, v
    if not get_uvarint(&p, end, &said) or said != size:
        return S2_BAD
    while p < end:
        tag = p[0]
        p += 1
        if tag & 3 == TAG_LITERAL:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                if <size_t> (end - p) < extra:
                    return S2_BAD
                v = 0
                memcpy(&v, p, extra)
                length = v
                p += extra
            length += 1
            if length > <size_t> (end - p) or length > <size_t> (out_end - to):
                return S2_BAD
            if length <= WIDE and end - p >= WIDE and out_end - to >= WIDE:
                memcpy(to, p, WIDE)   # one move; the bytes after it are written later
            else:
                memcpy(to, p, length)
            p += length
            to += length
            continue
        if tag & 3 == TAG_COPY_1:
            if p == end:
                return S2_BAD
            extra = (tag & 0xe0) << 3 | p[0]
            length = tag >> 2 & 7
            p += 1
            if extra:
                offset = extra
            elif length >= 5:
                # Repeat the last offset; the length has 1 to 3 more bytes.
                extra = length - 4
                if <size_t> (end - p) < extra:
                    return S2_BAD
                v = 0
                memcpy(&v, p, extra)
                length = v + (<uint32_t> 4 if extra == 1 else <uint32_t> 1 << 8 * (extra - 1))
                p += extra
            length += 4
        else:
            extra = 2 if tag & 3 == TAG_COPY_2 else 4
            if <size_t> (end - p) < extra:
                return S2_BAD
            v = 0
            memcpy(&v, p, extra)
            offset = v
            length = 1 + (tag >> 2)
            p += extra
        if offset == 0 or offset > <size_t> (to - out) or length > <size_t> (out_end - to):
            return S2_BAD
        copy_within(to, offset, length, out_end)
        to += length
    return 0 if to == out_end else S2_BAD


cdef int64_t s2_chunk_size(const uint8_t *data, size_t n) noexcept nogil:
    cdef size_t size
    if n < S2_CHUNK_HEADER:
        return 0
    size = S2_CHUNK_HEADER + (data[1] | <size_t> data[2] << 8 | <size_t> data[3] << 16)
    if data[0] > CHUNK_UNCOMPRESSED and data[0] < CHUNK_SKIPPABLE:
        return S2_BAD
    if size > S2_MAX_CHUNK and not s2_skippable(data):
        return S2_BAD
    return <int64_t> size


cdef bint s2_skippable(const uint8_t *data) noexcept nogil:
    return data[0] >= CHUNK_SKIPPABLE and data[0] != S2_BEGIN


cdef int s2_next_chunk(const uint8_t **at, const uint8_t *end, bint first, S2Chunk *c) noexcept nogil:
    cdef const uint8_t *p = at[0]
    cdef size_t n, name = S2_IDENTIFIER - S2_CHUNK_HEADER
    if p == end:
        return 0
    if end - p < S2_CHUNK_HEADER:
        return S2_BAD
    c.type = p[0]
    n = p[1] | <size_t> p[2] << 8 | <size_t> p[3] << 16
    p += S2_CHUNK_HEADER
    if n > <size_t> (end - p) or (first and c.type != S2_BEGIN):
        return S2_BAD
    at[0] = p + n
    c.size = 0
    if c.type == S2_BEGIN:
        if n != name or (
            memcmp(p, IDENTIFIER + S2_CHUNK_HEADER, name) and memcmp(p, SNAPPY + S2_CHUNK_HEADER, name)
        ):
            return S2_BAD
    elif c.type == CHUNK_COMPRESSED or c.type == CHUNK_UNCOMPRESSED:
        if n < CRC:
            return S2_BAD
        c.crc = load32(p)
        c.body = p + CRC
        c.n = n - CRC
        c.size = c.n
        if c.type == CHUNK_COMPRESSED:
            p = c.body
            if not get_uvarint(&p, at[0], &c.size):
                return S2_BAD
        if c.size > S2_MAX_BLOCK:
            return S2_BAD
    elif c.type < CHUNK_SKIPPABLE:
        return S2_BAD
    return 1


cdef int64_t s2_decoded_size(const uint8_t *data, size_t n, uint64_t limit) noexcept nogil:
    cdef const uint8_t *p = data
    cdef uint64_t size = 0
    cdef S2Chunk c
    cdef int more
    while True:
        more = s2_next_chunk(&p, data + n, p == data, &c)
        if more < 0:
            return more
        if more == 0:
            return <int64_t> size
        size += c.size
        if size > limit or size > <uint64_t> INT64_MAX:
            return S2_TOO_LARGE


cdef int s2_decode_chunk(const S2Chunk *c, uint8_t *out) noexcept nogil:
    if c.type != CHUNK_COMPRESSED and c.type != CHUNK_UNCOMPRESSED:
        return 0
    if c.type == CHUNK_UNCOMPRESSED:
        memcpy(out, c.body, c.size)
    elif s2_decode_block(c.body, c.n, out, c.size) < 0:
        return S2_BAD
    return 0 if masked_crc(out, c.size) == c.crc else S2_BAD


cdef int s2_decode(const uint8_t *data, size_t n, uint8_t *out, size_t size) noexcept nogil:
    cdef const uint8_t *p = data
    cdef uint8_t *end = out + size
    cdef S2Chunk c
    cdef int more
    while True:
        more = s2_next_chunk(&p, data + n, p == data, &c)
        if more <= 0:
            return S2_BAD if more < 0 or out != end else 0
        if c.size > <uint64_t> (end - out) or s2_decode_chunk(&c, out) < 0:
            return S2_BAD
        out += c.size


# ---- encoding ----

cdef inline uint8_t *emit_literal(uint8_t *to, const uint8_t *p, size_t n) noexcept nogil:
    cdef uint32_t last = <uint32_t> n - 1
    cdef int extra
    if n == 0:
        return to
    if last < 60:
        to[0] = <uint8_t> (last << 2 | TAG_LITERAL)
        to += 1
    else:
        extra = 1 if last < 1 << 8 else 2 if last < 1 << 16 else 3
        to[0] = <uint8_t> ((59 + extra) << 2 | TAG_LITERAL)
        memcpy(to + 1, &last, extra)
        to += 1 + extra
    memcpy(to, p, n)
    return to + n


cdef inline uint8_t *emit_short(uint8_t *to, const uint8_t *p, size_t n) noexcept nogil:
    """Emit a literal before a match: WIDE bytes may be read behind it, and room is left in `to` for as many."""
    if n - 1 >= WIDE:   # also when there is none
        return emit_literal(to, p, n)
    to[0] = <uint8_t> ((n - 1) << 2 | TAG_LITERAL)
    memcpy(to + 1, p, WIDE)
    return to + 1 + n


cdef inline uint8_t *emit_repeat(uint8_t *to, size_t n) noexcept nogil:
    """Emit a copy of 4 bytes or more from the last offset."""
    cdef uint32_t v
    cdef int extra
    if n <= 8:
        to[0] = <uint8_t> ((n - 4) << 2 | TAG_COPY_1)
        to[1] = 0
        return to + 2
    if n < 8 + (1 << 8):
        extra = 1
        v = <uint32_t> (n - 8)
    elif n < 4 + (1 << 8) + (1 << 16):
        extra = 2
        v = <uint32_t> (n - 4 - (1 << 8))
    else:
        extra = 3
        v = <uint32_t> (n - 4 - (1 << 16))
    to[0] = <uint8_t> ((4 + extra) << 2 | TAG_COPY_1)
    to[1] = 0
    memcpy(to + 2, &v, extra)
    return to + 2 + extra


cdef inline uint8_t *emit_copy(uint8_t *to, size_t offset, size_t n) noexcept nogil:
    """Emit a copy of 4 bytes or more from a new offset."""
    cdef size_t first = n
    if offset < 2048 and (n <= 11 or n > 64):
        first = n if n <= 11 else 8
        to[0] = <uint8_t> ((offset >> 8) << 5 | (first - 4) << 2 | TAG_COPY_1)
        to[1] = <uint8_t> offset
        to += 2
    else:
        if n > 64:
            # The rest must be 4 bytes or more.
            first = 60
        to[0] = <uint8_t> ((first - 1) << 2 | (TAG_COPY_2 if offset < 65536 else TAG_COPY_4))
        memcpy(to + 1, &offset, 4)
        to += 3 if offset < 65536 else 5
    return emit_repeat(to, n - first) if n > first else to


cdef inline uint32_t hash6(uint64_t v, int bits) noexcept nogil:
    return <uint32_t> ((v << 16) * <uint64_t> 227718039650203 >> (64 - bits))


cdef size_t shrink_block(const uint8_t *p, size_t n, uint8_t *out, uint32_t *table) noexcept nogil:
    """Compress a block of at most S2_BLOCK bytes; return its size, 0 when it would not shrink.

    `out` has room for n + n / 8 + 32 bytes.
    """
    cdef int bits = SMALLEST_TABLE
    if n < SMALLEST:
        return 0
    # To clear the whole table would take longer than to compress a short block, and up to 64 KiB find as much in half.
    while bits < S2_TABLE_BITS - 1 and n > <size_t> 1 << bits:
        bits += 1
    if n > 1 << (S2_TABLE_BITS + 1):
        bits = S2_TABLE_BITS
    return encode_with(p, n, out, table, bits)


cdef inline size_t encode_with(const uint8_t *p, size_t n, uint8_t *out, uint32_t *table, int bits) noexcept nogil:
    cdef uint8_t *to = put_uvarint(out, n)
    cdef size_t s = 1, done = 0, c, length, last = 0, limit, good = n - (n >> 5)
    cdef uint64_t now, diff
    cdef uint32_t h0, h1, c0, c1
    limit = n - MARGIN
    memset(table, 0, sizeof(uint32_t) << bits)
    while s < limit:
        now = load64(p + s)
        h0 = hash6(now, bits)
        h1 = hash6(now >> 8, bits)
        c0 = table[h0]
        c1 = table[h1]
        table[h0] = <uint32_t> s
        table[h1] = <uint32_t> (s + 1)
        if last and <uint32_t> (now >> 8) == load32(p + s + 1 - last):
            s += 1
            c = s - last
        elif <uint32_t> now == load32(p + c0):
            c = c0
        elif <uint32_t> (now >> 8) == load32(p + c1) and c1 <= s:
            s += 1
            c = c1
        else:
            s += ((s - done) >> 6) + 2
            continue
        while s > done and c > 0 and p[s - 1] == p[c - 1]:
            s -= 1
            c -= 1
        if <size_t> (to - out) + (s - done) + 8 > good:
            return 0
        to = emit_short(to, p + done, s - done)
        length = 4
        diff = 0
        while s + length + 8 <= n:
            diff = load64(p + s + length) ^ load64(p + c + length)
            if diff:
                length += trailing_zeros(diff) >> 3
                break
            length += 8
        if diff == 0:
            while s + length < n and p[s + length] == p[c + length]:
                length += 1
        if s - c == last:
            to = emit_repeat(to, length)
        else:
            last = s - c
            to = emit_copy(to, last, length)
        s += length
        done = s
        if s < limit:
            # Later matches may refer to the end of this one.
            now = load64(p + s - 2)
            table[hash6(now, bits)] = <uint32_t> (s - 2)
            table[hash6(now >> 8, bits)] = <uint32_t> (s - 1)
    if <size_t> (to - out) + (n - done) + 8 > good:
        return 0
    return <size_t> (emit_literal(to, p + done, n - done) - out)


cdef size_t s2_bound(size_t n) noexcept nogil:
    # shrink_block() writes in place, and may need more room than the chunk has in the end.
    return S2_IDENTIFIER + n + (n // S2_BLOCK + 1) * (S2_CHUNK_HEADER + CRC + 64)


cdef void s2_put_identifier(uint8_t *out) noexcept nogil:
    memcpy(out, IDENTIFIER, S2_IDENTIFIER)


cdef size_t s2_put_chunk(const uint8_t *data, size_t n, uint8_t *out, uint32_t *table) noexcept nogil:
    cdef size_t size = shrink_block(data, n, out + S2_CHUNK_HEADER + CRC, table)
    if size == 0:
        return s2_put_uncompressed(data, n, out)
    return put_header(out, CHUNK_COMPRESSED, size, masked_crc(data, n))


cdef size_t s2_put_uncompressed(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil:
    memcpy(out + S2_CHUNK_HEADER + CRC, data, n)
    return put_header(out, CHUNK_UNCOMPRESSED, n, masked_crc(data, n))


cdef inline size_t put_header(uint8_t *out, uint32_t type, size_t size, uint32_t crc) noexcept nogil:
    cdef uint32_t header = type | <uint32_t> (size + CRC) << 8
    memcpy(out, &header, 4)
    memcpy(out + S2_CHUNK_HEADER, &crc, 4)
    return S2_CHUNK_HEADER + CRC + size


cdef int64_t s2_encode(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil:
    cdef uint32_t *table = <uint32_t *> malloc(sizeof(uint32_t) << S2_TABLE_BITS)
    cdef uint8_t *to = out + S2_IDENTIFIER
    cdef size_t part
    if table == NULL:
        return S2_NO_MEMORY
    s2_put_identifier(out)
    while n:
        part = min(n, <size_t> S2_BLOCK)
        to += s2_put_chunk(data, part, to, table)
        data += part
        n -= part
    free(table)
    return to - out


cdef int64_t s2_encode_block(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil:
    cdef uint32_t *table = <uint32_t *> malloc(sizeof(uint32_t) << S2_TABLE_BITS)
    cdef uint8_t *to = put_uvarint(out, n)
    cdef size_t part, size, header
    if table == NULL:
        return S2_NO_MEMORY
    # Copies refer back by distance alone, so the tags of parts can follow each other, without the parts' lengths.
    while n:
        part = min(n, <size_t> S2_BLOCK)
        size = shrink_block(data, part, to, table)
        if size:
            header = put_uvarint(to, part) - to
            memmove(to, to + header, size - header)
            to += size - header
        else:
            to = emit_literal(to, data, part)
        data += part
        n -= part
    free(table)
    return to - out


# ---- for Python ----

cdef object s2_error(int64_t bad):
    if bad == S2_NO_MEMORY:
        return MemoryError()
    return ValueError("over the limit" if bad == S2_TOO_LARGE else "not S2, or damaged")


cdef bytes encoded(bytes data, int64_t (*encode)(const uint8_t *data, size_t n, uint8_t *out) noexcept nogil):
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef size_t n = len(data)
    cdef int64_t size
    out = PyBytes_FromStringAndSize(NULL, s2_bound(n))
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(out)
    with nogil:
        size = encode(p, n, to)
    if size < 0:
        raise s2_error(size)
    return out[:size]


def encode(bytes data not None) -> bytes:
    return encoded(data, s2_encode)


def encode_block(bytes data not None) -> bytes:
    return encoded(data, s2_encode_block)


cdef bytes decoded(
    bytes data, int64_t size, int (*decode)(const uint8_t *data, size_t n, uint8_t *out, size_t size) noexcept nogil
):
    """Decode to `size` bytes; below 0, it is an S2Error."""
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef size_t n = len(data)
    cdef int bad
    if size < 0:
        raise s2_error(size)
    out = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t *to = <uint8_t *> PyBytes_AS_STRING(out)
    with nogil:
        bad = decode(p, n, to, size)
    if bad:
        raise s2_error(bad)
    return out


def decode(bytes data not None, uint64_t limit) -> bytes:
    return decoded(data, s2_decoded_size(<const uint8_t *> PyBytes_AS_STRING(data), len(data), limit), s2_decode)


def decode_block(bytes data not None, uint64_t limit) -> bytes:
    cdef const uint8_t *at = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef uint64_t size
    if not get_uvarint(&at, at + len(data), &size):
        raise s2_error(S2_BAD)
    if size > limit or size > <uint64_t> INT64_MAX:
        raise s2_error(S2_TOO_LARGE)
    return decoded(data, <int64_t> size, s2_decode_block)


def crc(bytes data not None) -> int:
    """Return the CRC-32C (for tests)."""
    return crc32c(PyBytes_AS_STRING(data), len(data))


def use_wide(allowed: bool) -> bool:
    """Allow or forbid the processor's CRC-32C instruction; return whether it was used before (for tests)."""
    before = crc32c_ready == 2
    crc32c_prepare(allowed)
    return before
