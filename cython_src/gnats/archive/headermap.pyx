"""Headers of messages as a map from keys to lists of values.

Lines are parsed as in nats.go: the key is the text before the first colon, unchanged; blanks after the colon are not
part of the value. Keys are in the order of their first lines, the values of a key in the order of theirs. A status in
the first line becomes `Status` and `Description`.

The key "" has everything that is not a header: lines without a colon or a key, the text after the empty line, and the
whole block if it does not begin with NATS/1.0.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, memset, strlen

from gnats.archive.columns cimport BATCH_NO_MEMORY, Batch, Buffer, HeaderLine, buffer_room
from gnats.archive.text cimport MOST_SHOWN, is_plain, show_bytes
from gnats.core.subjects.subject cimport hash_bytes
from gnats.includes.arrays cimport array_grow
from gnats.includes.text cimport starts_with_text

cdef enum:
    STATUS_SIZE = 3
    FEW = 12            # up to so many lines are compared pair by pair, more by a hash table

cdef extern from * nogil:
    """
    #define GNATS_HEADER_VERSION "NATS/1.0"
    """
    const char *VERSION "GNATS_HEADER_VERSION"


cdef inline bint is_blank(uint8_t c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef int add_line(
    Batch *b, uint32_t *n, const uint8_t *key, size_t key_n, const uint8_t *value, size_t value_n,
) noexcept nogil:
    cdef HeaderLine *line
    if n[0] == b.lines_room and not array_grow(&b.lines, &b.lines_room, 64, sizeof(HeaderLine)):
        return BATCH_NO_MEMORY
    line = &b.lines[n[0]]
    line.key = key
    line.key_n = <uint32_t> key_n
    line.value = value
    line.value_n = <uint32_t> value_n
    line.next = 0
    line.last = n[0]
    line.again = False
    n[0] += 1
    return 0


cdef int take_lines(Batch *b, uint32_t *n, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *stop
    cdef const uint8_t *line_end
    cdef const uint8_t *colon
    cdef const uint8_t *value
    while p < end:
        stop = <const uint8_t *> memchr(p, c'\n', end - p)
        line_end = end if stop == NULL else stop
        stop = end if stop == NULL else stop + 1
        if line_end < stop and line_end > p and (line_end - 1)[0] == c'\r':
            line_end -= 1
        if line_end == p:
            return add_line(b, n, p, 0, stop, end - stop) if stop < end else 0
        colon = <const uint8_t *> memchr(p, c':', line_end - p)
        if colon == NULL or colon == p:
            if add_line(b, n, p, 0, p, line_end - p) != 0:
                return BATCH_NO_MEMORY
        else:
            value = colon + 1
            while value < line_end and is_blank(value[0]):
                value += 1
            if add_line(b, n, p, colon - p, value, line_end - value) != 0:
                return BATCH_NO_MEMORY
        p = stop
    return 0


cdef inline int add_named(
    Batch *b, uint32_t *n, const char *key, const uint8_t *value, size_t value_n,
) noexcept nogil:
    """Add a line whose key is a literal."""
    return add_line(b, n, <const uint8_t *> key, strlen(key), value, value_n)


cdef int take_status(Batch *b, uint32_t *n, const uint8_t *p, const uint8_t *end) noexcept nogil:
    cdef const uint8_t *rest
    while p < end and is_blank(p[0]):
        p += 1
    while end > p and is_blank((end - 1)[0]):
        end -= 1
    if p == end:
        return 0
    rest = p + min(<size_t> STATUS_SIZE, <size_t> (end - p))
    if add_named(b, n, b"Status", p, rest - p) != 0:
        return BATCH_NO_MEMORY
    while rest < end and is_blank(rest[0]):
        rest += 1
    return add_named(b, n, b"Description", rest, end - rest) if rest < end else 0


cdef inline bint same_key(const HeaderLine *x, const HeaderLine *y) noexcept nogil:
    return x.key_n == y.key_n and memcmp(x.key, y.key, x.key_n) == 0


cdef inline void follow(Batch *b, uint32_t first, uint32_t i) noexcept nogil:
    b.lines[b.lines[first].last].next = i
    b.lines[first].last = i
    b.lines[i].again = True


cdef int join_keys(Batch *b, uint32_t n) noexcept nogil:
    cdef uint32_t i, k, mask
    if n <= FEW:
        for i in range(1, n):
            for k in range(i):
                if not b.lines[k].again and same_key(&b.lines[k], &b.lines[i]):
                    follow(b, k, i)
                    break
        return 0
    while b.table_room < <size_t> n * 2:
        if not array_grow(&b.table, &b.table_room, 64, sizeof(uint32_t)):
            return BATCH_NO_MEMORY
    mask = <uint32_t> b.table_room - 1
    memset(b.table, 0, b.table_room * sizeof(uint32_t))
    for i in range(n):
        k = hash_bytes(<const char *> b.lines[i].key, b.lines[i].key_n) & mask
        while b.table[k] and not same_key(&b.lines[b.table[k] - 1], &b.lines[i]):
            k = (k + 1) & mask
        if b.table[k]:
            follow(b, b.table[k] - 1, i)
        else:
            b.table[k] = i + 1
    return 0


cdef int put_text(Buffer *data, Buffer *at, const uint8_t *p, size_t n) noexcept nogil:
    cdef bint plain = is_plain(p, n)
    cdef int32_t end
    if buffer_room(data, n if plain else n * MOST_SHOWN) != 0 or buffer_room(at, 4) != 0:
        return BATCH_NO_MEMORY
    if plain:
        memcpy(data.at + data.n, p, n)
        data.n += n
    else:
        data.n += show_bytes(p, n, data.at + data.n)
    end = <int32_t> data.n
    memcpy(at.at + at.n, &end, 4)
    at.n += 4
    return 0


cdef int add_headers(Batch *b, const uint8_t *hdr, size_t n) noexcept nogil:
    cdef const uint8_t *end = hdr + n
    cdef const uint8_t *line
    cdef const uint8_t *line_end
    cdef uint32_t count = 0, i, k
    cdef int32_t at
    cdef int rc
    if n:
        line = <const uint8_t *> memchr(hdr, c'\n', n)
        if not starts_with_text(<const char *> hdr, n, VERSION):
            rc = add_line(b, &count, hdr, 0, hdr, n)
        else:
            line_end = end if line == NULL else line
            if line != NULL and (line_end - 1)[0] == c'\r':
                line_end -= 1
            rc = take_lines(b, &count, line + 1, end) if line != NULL else 0
            if rc == 0:
                rc = take_status(b, &count, hdr + strlen(VERSION), line_end)
        if rc != 0 or join_keys(b, count) != 0:
            return BATCH_NO_MEMORY
        for i in range(count):
            if b.lines[i].again:
                continue
            if put_text(&b.key, &b.key_at, b.lines[i].key, b.lines[i].key_n) != 0:
                return BATCH_NO_MEMORY
            b.keys += 1
            k = i
            while True:
                if put_text(&b.value, &b.value_at, b.lines[k].value, b.lines[k].value_n) != 0:
                    return BATCH_NO_MEMORY
                b.values += 1
                k = b.lines[k].next
                if k == 0:
                    break
            at = <int32_t> b.values
            if buffer_room(&b.values_at, 4) != 0:
                return BATCH_NO_MEMORY
            memcpy(b.values_at.at + b.values_at.n, &at, 4)
            b.values_at.n += 4
        b.has_headers.at[b.rows >> 3] |= 1 << (b.rows & 7)
    else:
        b.without += 1
    at = <int32_t> b.keys
    memcpy(b.headers_at.at + b.headers_at.n, &at, 4)
    b.headers_at.n += 4
    return 0
