"""The buffers of a batch of messages, from which its columns are made.

One thread at a time uses a batch.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport realloc

cdef enum:
    SMALL = 256         # least size of a buffer in bytes


cdef enum BatchError:
    BATCH_FULL = 1
    BATCH_NO_MEMORY = -1


cdef struct Buffer:
    uint8_t *at
    size_t n, room      # bytes used, bytes allocated
    size_t hint         # first size to allocate: what the previous batch used, and an eighth more


cdef struct Batch:
    # Columns: sequence, subject, time in us, time in ns, headers, payload, size of the payload, block. Buffers named
    # _at have the offsets (int32) of variable-size values.
    Buffer seq, subject_at, subject, us, ns
    Buffer has_headers, headers_at, key_at, key, values_at, value_at, value
    Buffer payload_at, payload, size, block
    uint32_t rows, row_room     # row_room: rows that the columns with one value for each row have room for
    uint32_t most_rows
    uint32_t keys, values       # in the headers of all rows
    uint32_t without            # rows without headers
    size_t bytes, most_bytes    # approximate; a single message may exceed most_bytes
    HeaderLine *lines           # lines and table: scratch memory of add_headers()
    size_t lines_room
    uint32_t *table
    size_t table_room


cdef struct HeaderLine:
    const uint8_t *key
    const uint8_t *value
    uint32_t key_n, value_n
    uint32_t next               # index of the next line with this key, 0: none
    uint32_t last               # in the first line of a key: index of the last one
    bint again                  # an earlier line has this key


# Make room for n more bytes. 0 or BATCH_NO_MEMORY.
cdef inline int buffer_room(Buffer *b, size_t n) noexcept nogil:
    cdef size_t room
    cdef uint8_t *at
    if b.n + n <= b.room:
        return 0
    room = max(b.n + n, b.room * 2, b.hint, <size_t> SMALL)
    at = <uint8_t *> realloc(b.at, room)
    if at == NULL:
        return BATCH_NO_MEMORY
    b.at = at
    b.room = room
    return 0
