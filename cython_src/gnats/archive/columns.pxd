"""The buffers of a batch of messages, which its columns are made of.

A batch belongs to the one thread that fills it.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport realloc

cdef enum:
    SMALL = 256         # bytes that a buffer has at least


cdef enum BatchError:
    BATCH_FULL = 1
    BATCH_NO_MEMORY = -1


cdef struct Buffer:
    uint8_t *at
    size_t n, room      # bytes
    size_t hint         # what the one before it had at last


cdef struct Batch:
    # sequence, subject, time in us, time in ns, headers, payload, size of the payload, block
    Buffer seq, subject_at, subject, us, ns
    Buffer has_headers, headers_at, key_at, key, values_at, value_at, value
    Buffer payload_at, payload, size, block
    uint32_t rows, row_room     # row_room: of the columns of one value a row
    uint32_t most_rows
    uint32_t keys, values       # of all headers
    uint32_t without            # headers
    size_t bytes, most_bytes    # about; one message may be larger
    HeaderLine *lines           # scratch
    size_t lines_room
    uint32_t *table             # scratch
    size_t table_room


cdef struct HeaderLine:
    const uint8_t *key
    const uint8_t *value
    uint32_t key_n, value_n
    uint32_t next               # the next line of this key, 0: none
    uint32_t last               # of the first of a key: the last one
    bint again                  # there was one of this key before


# For n bytes more: 0 or BATCH_NO_MEMORY.
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
