"""Columns of messages; see arrow.pxd."""
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from gnats.archive.columns cimport BATCH_FULL, BATCH_NO_MEMORY, SMALL, Batch, Buffer, buffer_room
from gnats.archive.headermap cimport add_headers
from gnats.archive.spare cimport spare_give, spare_take
from gnats.archive.text cimport MOST_SHOWN, is_plain, show_bytes

cdef enum:
    FEW_ROWS = 1024
    MOST_BYTES = 1 << 30    # offsets have 31 bits, and one more message must fit
    MOST_TEXT = 0x7fffff00  # below 2**31: the keys `Status` and `Description` are not counted
    MICROSECOND = 1000
    CHILDREN = 8


# --- filling ---

cdef void batch_init(Batch *b, uint32_t most_rows, size_t most_bytes) noexcept nogil:
    b.most_rows = most_rows
    b.most_bytes = min(most_bytes, <size_t> MOST_BYTES)


cdef inline void buffer_drop(Buffer *b) noexcept nogil:
    free(b.at)
    b.at = NULL
    b.n = b.room = 0


cdef void batch_free(Batch *b) noexcept nogil:
    buffer_drop(&b.seq)
    buffer_drop(&b.subject_at)
    buffer_drop(&b.subject)
    buffer_drop(&b.us)
    buffer_drop(&b.ns)
    buffer_drop(&b.has_headers)
    buffer_drop(&b.headers_at)
    buffer_drop(&b.key_at)
    buffer_drop(&b.key)
    buffer_drop(&b.values_at)
    buffer_drop(&b.value_at)
    buffer_drop(&b.value)
    buffer_drop(&b.payload_at)
    if b.payload.at != NULL:
        spare_give(b.payload.at, b.payload.room)
    buffer_drop(&b.size)
    buffer_drop(&b.block)
    free(b.lines)
    free(b.table)
    b.lines = NULL
    b.table = NULL
    b.lines_room = b.table_room = 0


cdef int start_offsets(Buffer *b, size_t rows) noexcept nogil:
    if buffer_room(b, 4 * (rows + 1)) != 0:
        return BATCH_NO_MEMORY
    if b.n == 0:
        memset(b.at, 0, 4)
        b.n = 4
    return 0


cdef int grow_rows(Batch *b) noexcept nogil:
    cdef uint32_t more = max(b.row_room, min(b.most_rows, <uint32_t> FEW_ROWS))
    cdef size_t bits = b.has_headers.n
    more = min(more, b.most_rows - b.row_room)
    if (buffer_room(&b.seq, 8 * <size_t> more) != 0 or buffer_room(&b.us, 8 * <size_t> more) != 0
            or buffer_room(&b.ns, 8 * <size_t> more) != 0 or buffer_room(&b.size, 8 * <size_t> more) != 0
            or buffer_room(&b.block, 4 * <size_t> more) != 0 or start_offsets(&b.subject_at, more) != 0
            or start_offsets(&b.headers_at, more) != 0 or start_offsets(&b.payload_at, more) != 0
            or start_offsets(&b.key_at, 0) != 0 or start_offsets(&b.values_at, 0) != 0
            or start_offsets(&b.value_at, 0) != 0
            or buffer_room(&b.subject, SMALL) != 0
            or buffer_room(&b.key, SMALL) != 0 or buffer_room(&b.value, SMALL) != 0
            or buffer_room(&b.has_headers, more // 8 + 1) != 0):
        return BATCH_NO_MEMORY
    b.row_room += more
    b.has_headers.n = b.row_room // 8 + 1
    memset(b.has_headers.at + bits, 0, b.has_headers.n - bits)
    return 0


cdef int payload_room(Batch *b, size_t n) noexcept nogil:
    # Allocate all that the payloads of a batch can need at once: pages that are not touched cost nothing.
    if b.payload.at != NULL and b.payload.n + n <= b.payload.room:
        return 0
    if b.payload.at != NULL:
        # one message larger than the batch, which is empty: it gets a larger buffer
        spare_give(b.payload.at, b.payload.room)
    b.payload.room = max(n, b.most_bytes, <size_t> SMALL)
    b.payload.at = <uint8_t *> spare_take(&b.payload.room)
    if b.payload.at == NULL:
        b.payload.room = 0
        return BATCH_NO_MEMORY
    return 0


cdef inline void put32(Buffer *b, int32_t value) noexcept nogil:
    memcpy(b.at + b.n, &value, 4)
    b.n += 4


cdef inline void put64(Buffer *b, int64_t value) noexcept nogil:
    memcpy(b.at + b.n, &value, 8)
    b.n += 8


cdef bint batch_text_full(const Batch *b, size_t subject_n, size_t hdr_n) noexcept nogil:
    return (b.subject.n + MOST_SHOWN * subject_n > <size_t> MOST_TEXT
            or max(b.key.n, b.value.n) + MOST_SHOWN * hdr_n > <size_t> MOST_TEXT)


cdef int batch_add(
    Batch *b, uint64_t seq, int64_t ts, uint32_t block, const char *subject, size_t subject_n,
    const char *hdr, size_t hdr_n, const char *msg, size_t msg_n,
) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *> subject
    cdef size_t size = ROW_SIZE + subject_n + hdr_n + msg_n
    cdef int64_t us = ts // MICROSECOND
    if b.rows == b.most_rows or (b.rows and (b.bytes + size > b.most_bytes or batch_text_full(b, subject_n, hdr_n))):
        return BATCH_FULL
    if b.rows == b.row_room and grow_rows(b) != 0:
        return BATCH_NO_MEMORY
    if buffer_room(&b.subject, MOST_SHOWN * subject_n) != 0 or payload_room(b, msg_n) != 0:
        return BATCH_NO_MEMORY
    if add_headers(b, <const uint8_t *> hdr, hdr_n) != 0:
        return BATCH_NO_MEMORY
    if is_plain(p, subject_n):
        memcpy(b.subject.at + b.subject.n, p, subject_n)
        b.subject.n += subject_n
    else:
        b.subject.n += show_bytes(p, subject_n, b.subject.at + b.subject.n)
    if msg != <const char *> b.payload.at + b.payload.n:
        memcpy(b.payload.at + b.payload.n, msg, msg_n)
    b.payload.n += msg_n
    us -= us * MICROSECOND > ts     # rounded down, before 1970 as well
    put64(&b.seq, <int64_t> seq)
    put64(&b.us, us)
    put64(&b.ns, ts)
    put64(&b.size, <int64_t> msg_n)
    put32(&b.block, <int32_t> block)
    put32(&b.subject_at, <int32_t> b.subject.n)
    put32(&b.payload_at, <int32_t> b.payload.n)
    b.rows += 1
    b.bytes += size
    return 0


# --- exporting ---

cdef struct Held:
    # the memory that an exported array owns
    const void *buffers[3]
    ArrowArray *children[CHILDREN]
    size_t spare                # size of buffers[2] if it comes from archive.spare, else 0


cdef void release(ArrowArray *a) noexcept nogil:
    cdef Held *h = <Held *> a.private_data
    cdef int64_t i
    if h.spare:
        spare_give(<void *> h.buffers[2], h.spare)
        h.buffers[2] = NULL
    for i in range(a.n_buffers):
        free(<void *> h.buffers[i])
    for i in range(a.n_children):
        if h.children[i] != NULL:
            if h.children[i].release != NULL:
                h.children[i].release(h.children[i])
            free(h.children[i])
    free(h)
    a.release = NULL


cdef int array_init(ArrowArray *a, int64_t rows, int buffers, int children) noexcept nogil:
    # Make an array whose buffers and children are still empty. 0: the caller must release it, even after an error.
    cdef Held *h = <Held *> calloc(1, sizeof(Held))
    cdef int i
    if h == NULL:
        return BATCH_NO_MEMORY
    memset(a, 0, sizeof(ArrowArray))
    a.length = rows
    a.n_buffers = buffers
    a.n_children = children
    a.buffers = h.buffers
    a.children = h.children
    a.private_data = h
    a.release = release
    for i in range(children):
        h.children[i] = <ArrowArray *> calloc(1, sizeof(ArrowArray))
        if h.children[i] == NULL:
            release(a)
            return BATCH_NO_MEMORY
    return 0


cdef inline void give(ArrowArray *a, int i, Buffer *b) noexcept nogil:
    (<Held *> a.private_data).buffers[i] = b.at
    b.hint = b.n + b.n // 8
    b.at = NULL
    b.n = b.room = 0


cdef int give_fixed(ArrowArray *a, int64_t rows, Buffer *values) noexcept nogil:
    if array_init(a, rows, 2, 0) != 0:
        return BATCH_NO_MEMORY
    give(a, 1, values)
    return 0


cdef int give_bytes(ArrowArray *a, int64_t rows, Buffer *at, Buffer *data) noexcept nogil:
    if array_init(a, rows, 3, 0) != 0:
        return BATCH_NO_MEMORY
    give(a, 1, at)
    give(a, 2, data)
    return 0


cdef int give_payloads(ArrowArray *a, Batch *b) noexcept nogil:
    cdef size_t room = b.payload.room
    if give_bytes(a, b.rows, &b.payload_at, &b.payload) != 0:
        return BATCH_NO_MEMORY
    (<Held *> a.private_data).spare = room
    return 0


cdef int give_headers(ArrowArray *a, Batch *b) noexcept nogil:
    # map<string, list<string>>: a list of entries, each a struct of a string and a list
    cdef ArrowArray *entries
    cdef ArrowArray *values
    if array_init(a, b.rows, 2, 1) != 0:
        return BATCH_NO_MEMORY
    a.null_count = b.without
    give(a, 0, &b.has_headers)
    give(a, 1, &b.headers_at)
    entries = a.children[0]
    if array_init(entries, b.keys, 1, 2) != 0 or give_bytes(entries.children[0], b.keys, &b.key_at, &b.key) != 0:
        return BATCH_NO_MEMORY
    values = entries.children[1]
    if array_init(values, b.keys, 2, 1) != 0:
        return BATCH_NO_MEMORY
    give(values, 1, &b.values_at)
    return give_bytes(values.children[0], b.values, &b.value_at, &b.value)


cdef int batch_export(Batch *b, ArrowArray *out) noexcept nogil:
    cdef ArrowArray **column
    cdef int64_t rows = b.rows
    if (b.row_room == 0 and grow_rows(b) != 0) or payload_room(b, 0) != 0 or array_init(out, rows, 1, CHILDREN) != 0:
        return BATCH_NO_MEMORY
    column = out.children
    if (give_fixed(column[0], rows, &b.seq) != 0
            or give_bytes(column[1], rows, &b.subject_at, &b.subject) != 0
            or give_fixed(column[2], rows, &b.us) != 0
            or give_fixed(column[3], rows, &b.ns) != 0
            or give_headers(column[4], b) != 0
            or give_payloads(column[5], b) != 0
            or give_fixed(column[6], rows, &b.size) != 0
            or give_fixed(column[7], rows, &b.block) != 0):
        release(out)
        return BATCH_NO_MEMORY
    b.rows = b.row_room = b.keys = b.values = b.without = 0
    b.bytes = 0
    return 0


cdef void drop_capsule(object capsule) noexcept:
    cdef ArrowArray *a = <ArrowArray *> PyCapsule_GetPointer(capsule, b"arrow_array")
    if a.release != NULL:
        a.release(a)
    free(a)


cdef object batch_capsule(Batch *b):
    cdef ArrowArray *a = <ArrowArray *> malloc(sizeof(ArrowArray))
    if a == NULL or batch_export(b, a) != 0:
        free(a)
        raise MemoryError
    return PyCapsule_New(a, b"arrow_array", drop_capsule)
