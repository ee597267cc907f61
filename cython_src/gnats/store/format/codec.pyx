"""Encoding of index.db and o.dat; see codec.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport UINT32_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from gnats.core.subjects.subject cimport is_valid_subject
from gnats.includes.units cimport SECOND
from gnats.includes.varint cimport MAX_VARINT, get_uvarint, get_varint, put_uvarint, put_varint
from gnats.store.index.seqset cimport (
    SEQSET_NO_MEMORY,
    SequenceSet,
    seqset_clear,
    seqset_decode,
    seqset_encode,
    seqset_encoded_size,
)
from gnats.store.index.stree cimport (
    MAX_TREE_SUBJECT,
    SimpleState,
    STree,
    STreeIter,
    stree_clear,
    stree_end,
    stree_init,
    stree_insert,
    stree_iter,
    stree_next,
)

cdef enum:
    SMALLEST_BLOCK = 7       # least bytes of a block: seven numbers in version 1, without deletions


# ---- index.db ----

cdef size_t index_bound(const IndexState *s) noexcept nogil:
    cdef size_t i, n = 2 + 8 * MAX_VARINT + MAX_VARINT + 8
    n += s.subjects.size * 4 * MAX_VARINT + s.subjects.subject_bytes
    for i in range(s.n_blocks):
        n += 9 * MAX_VARINT
        if s.blocks[i].deleted.size:
            n += seqset_encoded_size(&s.blocks[i].deleted)
    return n


cdef int index_encode(const IndexState *s, size_t front, size_t back, uint8_t **out, size_t *n) noexcept nogil:
    cdef uint8_t *buffer = <uint8_t *> malloc(front + index_bound(s) + back)
    cdef uint8_t *p = buffer + front
    cdef const IndexBlock *b
    cdef const SimpleState *state
    cdef STreeIter it
    cdef size_t i
    cdef bint failed
    if buffer == NULL:
        return CODEC_NO_MEMORY
    p[0] = INDEX_MAGIC
    p[1] = INDEX_VERSION
    p = put_uvarint(p + 2, s.msgs)
    p = put_uvarint(p, s.bytes)
    p = put_uvarint(p, s.first_seq)
    p = put_varint(p, s.first_ts)
    p = put_uvarint(p, s.last_seq)
    p = put_varint(p, s.last_ts)
    p = put_uvarint(p, s.subjects.size)
    stree_iter(&it, s.subjects, NULL, 0)
    while stree_next(&it):
        state = <const SimpleState *> it.value
        p = put_uvarint(p, it.subject_n)
        memcpy(p, it.subject, it.subject_n)
        p = put_uvarint(p + it.subject_n, state.msgs)
        p = put_uvarint(p, state.first_block)
        p = put_uvarint(p, state.last_block)
    failed = it.failed
    stree_end(&it)
    if failed:
        free(buffer)
        return CODEC_NO_MEMORY
    p = put_uvarint(p, s.n_blocks)
    for i in range(s.n_blocks):
        b = &s.blocks[i]
        p = put_uvarint(p, b.index)
        p = put_uvarint(p, b.bytes)
        p = put_uvarint(p, b.first_seq)
        p = put_varint(p, less(b.first_ts, s.first_ts))
        p = put_uvarint(p, b.last_seq)
        p = put_varint(p, less(b.last_ts, s.first_ts))
        p = put_uvarint(p, b.deleted.size)
        p = put_uvarint(p, b.ttls)
        p = put_uvarint(p, b.schedules)
        if b.deleted.size:
            p += seqset_encode(&b.deleted, p)
    p = put_uvarint(p, s.last_block)
    memcpy(p, &s.last_checksum, 8)
    out[0] = buffer
    n[0] = <size_t> (p + 8 - buffer) - front
    return 0


# Differences of times wrap around, as in nats-server.
cdef inline int64_t less(int64_t a, int64_t b) noexcept nogil:
    return <int64_t> (<uint64_t> a - <uint64_t> b)


cdef inline int64_t plus(int64_t a, int64_t b) noexcept nogil:
    return <int64_t> (<uint64_t> a + <uint64_t> b)


cdef inline bint get_u32(const uint8_t **at, const uint8_t *end, uint32_t *v) noexcept nogil:
    cdef uint64_t u = 0
    if not get_uvarint(at, end, &u) or u > UINT32_MAX:
        return False
    v[0] = <uint32_t> u
    return True


cdef int decode_subjects(STree *t, const uint8_t **at, const uint8_t *end, int version) noexcept nogil:
    cdef uint64_t left = 0, n = 0
    cdef SimpleState *state
    cdef SimpleState read
    cdef const char *subject
    cdef bint was_there
    if not get_uvarint(at, end, &left):
        return CODEC_BAD
    memset(&read, 0, sizeof(read))
    while left:
        left -= 1
        if not get_uvarint(at, end, &n) or n > <uint64_t> (end - at[0]):
            return CODEC_BAD
        if n == 0:
            continue
        subject = <const char *> at[0]
        at[0] += n
        if not is_valid_subject(subject, n) or n > MAX_TREE_SUBJECT:
            return CODEC_BAD
        if not get_uvarint(at, end, &read.msgs) or not get_u32(at, end, &read.first_block):
            return CODEC_BAD
        read.last_block = read.first_block
        if (read.msgs > 1 or version >= 4) and not get_u32(at, end, &read.last_block):
            return CODEC_BAD
        state = <SimpleState *> stree_insert(t, subject, n, &was_there)
        if state == NULL:
            return CODEC_NO_MEMORY
        state[0] = read
    return 0


cdef int decode_block(IndexBlock *b, int64_t base, const uint8_t **at, const uint8_t *end, int version) noexcept nogil:
    cdef uint64_t deleted = 0
    cdef int64_t first = 0, last = 0, used
    if not (
        get_u32(at, end, &b.index)
        and get_uvarint(at, end, &b.bytes)
        and get_uvarint(at, end, &b.first_seq)
        and get_varint(at, end, &first)
        and get_uvarint(at, end, &b.last_seq)
        and get_varint(at, end, &last)
        and get_uvarint(at, end, &deleted)
        and (version < 2 or get_uvarint(at, end, &b.ttls))
        and (version < 3 or get_uvarint(at, end, &b.schedules))
    ):
        return CODEC_BAD
    b.first_ts = plus(first, base)
    b.last_ts = plus(last, base)
    if deleted:
        used = seqset_decode(&b.deleted, at[0], <size_t> (end - at[0]))
        if used < 0:
            return CODEC_NO_MEMORY if used == SEQSET_NO_MEMORY else CODEC_BAD
        at[0] += used
        if b.deleted.size != deleted:
            return CODEC_BAD
    return 0


cdef int index_fields(IndexState *s, const uint8_t *data, size_t n) noexcept nogil:
    cdef const uint8_t *p = data + 2
    cdef const uint8_t *end = data + n
    cdef uint64_t blocks = 0, i
    cdef int version, bad
    if n < 2 or data[0] != INDEX_MAGIC or data[1] < 1 or data[1] > INDEX_VERSION:
        return CODEC_BAD
    version = data[1]
    if not (
        get_uvarint(&p, end, &s.msgs)
        and get_uvarint(&p, end, &s.bytes)
        and get_uvarint(&p, end, &s.first_seq)
        and get_varint(&p, end, &s.first_ts)
        and get_uvarint(&p, end, &s.last_seq)
        and get_varint(&p, end, &s.last_ts)
    ):
        return CODEC_BAD
    bad = decode_subjects(s.subjects, &p, end, version)
    if bad:
        return bad
    if not get_uvarint(&p, end, &blocks) or blocks > <uint64_t> (end - p) // SMALLEST_BLOCK:
        return CODEC_BAD
    s.blocks = <IndexBlock *> calloc(blocks + 1, sizeof(IndexBlock))
    if s.blocks == NULL:
        return CODEC_NO_MEMORY
    for i in range(blocks):
        s.n_blocks += 1
        bad = decode_block(&s.blocks[i], s.first_ts, &p, end, version)
        if bad:
            return bad
    if not get_u32(&p, end, &s.last_block) or end - p < 8:
        return CODEC_BAD
    memcpy(&s.last_checksum, p, 8)
    return 0


cdef int index_decode(IndexState *s, const uint8_t *data, size_t n) noexcept nogil:
    cdef int bad = index_fields(s, data, n)
    if bad:
        index_free(s)
        stree_clear(s.subjects)
    return bad


cdef void index_free(IndexState *s) noexcept nogil:
    cdef size_t i
    for i in range(s.n_blocks):
        seqset_clear(&s.blocks[i].deleted)
    free(s.blocks)
    s.blocks = NULL
    s.n_blocks = 0


# ---- o.dat ----

cdef size_t consumer_bound(const ConsumerSnapshot *s) noexcept nogil:
    return 2 + 7 * MAX_VARINT + s.n_pending * 3 * MAX_VARINT + s.n_redelivered * 2 * MAX_VARINT


cdef size_t consumer_encode(const ConsumerSnapshot *s, int64_t now, uint8_t *out) noexcept nogil:
    cdef uint8_t *p = out
    cdef int64_t base = <int64_t> ((<uint64_t> now + <uint64_t> SECOND // 2) // <uint64_t> SECOND)
    cdef size_t i
    p[0] = CONSUMER_MAGIC
    p[1] = CONSUMER_VERSION
    p = put_uvarint(p + 2, s.floor_consumer)
    p = put_uvarint(p, s.floor_stream)
    p = put_uvarint(p, s.delivered_consumer)
    p = put_uvarint(p, s.delivered_stream)
    p = put_uvarint(p, s.n_pending)
    if s.n_pending:
        p = put_varint(p, base)
        for i in range(s.n_pending):
            p = put_uvarint(p, s.pending[i].stream_seq - s.floor_stream)
            p = put_uvarint(p, s.pending[i].consumer_seq - s.floor_consumer)
            p = put_varint(p, base - s.pending[i].ts // SECOND)
    p = put_uvarint(p, s.n_redelivered)
    for i in range(s.n_redelivered):
        p = put_uvarint(p, s.redelivered[i].seq - s.floor_stream)
        p = put_uvarint(p, s.redelivered[i].count)
    return <size_t> (p - out)


cdef int consumer_fields(ConsumerSnapshot *s, const uint8_t *data, size_t n) noexcept nogil:
    """Read an o.dat into `s`, which the caller frees, also after an error. Leave out what its position contradicts."""
    cdef const uint8_t *p = data + 2
    cdef const uint8_t *end = data + n
    cdef uint64_t count = 0, seq = 0
    cdef int64_t base = 0, ts = 0
    cdef PendingEntry *e
    cdef RedeliveredEntry *r
    cdef int version
    cdef bint pends
    if n < 2 or data[0] != CONSUMER_MAGIC or data[1] < 1 or data[1] > CONSUMER_VERSION:
        return CODEC_BAD
    version = data[1]
    if not (
        get_uvarint(&p, end, &s.floor_consumer)
        and get_uvarint(&p, end, &s.floor_stream)
        and get_uvarint(&p, end, &s.delivered_consumer)
        and get_uvarint(&p, end, &s.delivered_stream)
    ):
        return CODEC_BAD
    if version == 1:
        # version 1 counts the next delivery from the ack floor
        if s.floor_consumer > 1:
            s.delivered_consumer += s.floor_consumer - 1
        if s.floor_stream > 1:
            s.delivered_stream += s.floor_stream - 1
    if (s.floor_stream | s.delivered_stream | s.floor_consumer | s.delivered_consumer) > <uint64_t> MAX_POSITION:
        return CODEC_BAD
    # An acknowledged message was delivered: the delivered sequences are not below the ack floor.
    s.delivered_stream = max(s.delivered_stream, s.floor_stream)
    s.delivered_consumer = max(s.delivered_consumer, s.floor_consumer)
    # a file may end after each part: no pending or redelivered messages then
    if get_uvarint(&p, end, &count) and count:
        if not get_varint(&p, end, &base) or count > <uint64_t> (end - p) // <uint64_t> (version + 1):
            return CODEC_BAD
        s.pending = <PendingEntry *> calloc(count, sizeof(PendingEntry))
        if s.pending == NULL:
            return CODEC_NO_MEMORY
        while count:
            count -= 1
            e = &s.pending[s.n_pending]
            if not get_uvarint(&p, end, &e.stream_seq):
                return CODEC_BAD
            if version >= 2 and not get_uvarint(&p, end, &e.consumer_seq):
                return CODEC_BAD
            if not get_varint(&p, end, &ts):
                return CODEC_BAD
            # A pending message was delivered and is after the ack floor's stream sequence. Its consumer sequence may be
            # below the floor's, which may come from a redelivery of an earlier message.
            pends = 0 < e.stream_seq <= s.delivered_stream - s.floor_stream
            e.stream_seq += s.floor_stream
            if version >= 2:
                e.consumer_seq += s.floor_consumer    # modulo 2**64
                pends = pends and 0 < e.consumer_seq <= s.delivered_consumer
            ts = plus(base, ts) if version == 1 else less(base, ts)
            e.ts = <int64_t> (<uint64_t> ts * <uint64_t> SECOND)
            if e.stream_seq == 0:
                return CODEC_BAD
            s.n_pending += pends
    count = 0
    if get_uvarint(&p, end, &count) and count:
        if count > <uint64_t> (end - p) // 2:
            count = <uint64_t> (end - p) // 2
        s.redelivered = <RedeliveredEntry *> calloc(count + 1, sizeof(RedeliveredEntry))
        if s.redelivered == NULL:
            return CODEC_NO_MEMORY
        while count:
            count -= 1
            r = &s.redelivered[s.n_redelivered]
            if not get_uvarint(&p, end, &seq) or not get_uvarint(&p, end, &r.count):
                break
            if 0 < seq <= s.delivered_stream - s.floor_stream and r.count:
                r.seq = seq + s.floor_stream
                s.n_redelivered += 1
    return 0


cdef int consumer_decode(ConsumerSnapshot *s, const uint8_t *data, size_t n) noexcept nogil:
    cdef int bad = consumer_fields(s, data, n)
    if bad:
        consumer_free(s)
    return bad


cdef void consumer_free(ConsumerSnapshot *s) noexcept nogil:
    free(s.pending)
    free(s.redelivered)
    memset(s, 0, sizeof(ConsumerSnapshot))


# ---- for Python ----

def encode_index(tuple state not None, list subjects not None, list blocks not None, tuple last not None) -> bytes:
    cdef IndexState s
    cdef STree tree
    cdef IndexBlock *b
    cdef SimpleState *value
    cdef SequenceSet deleted
    cdef uint8_t *out = NULL
    cdef size_t n = 0, i
    cdef bint was_there
    cdef int bad
    stree_init(&tree, sizeof(SimpleState))
    s.subjects = &tree
    s.n_blocks = len(blocks)
    s.blocks = <IndexBlock *> calloc(s.n_blocks + 1, sizeof(IndexBlock))
    if s.blocks == NULL:
        raise MemoryError
    try:
        s.msgs, s.bytes, s.first_seq, s.first_ts, s.last_seq, s.last_ts = state
        s.last_block, checksum = last
        s.last_checksum = int.from_bytes(checksum, "little")
        for subject, msgs, first_block, last_block in subjects:
            value = <SimpleState *> stree_insert(&tree, <bytes> subject, len(subject), &was_there)
            if value == NULL:
                raise MemoryError
            value.msgs, value.first_block, value.last_block = msgs, first_block, last_block
        for i in range(s.n_blocks):
            b = &s.blocks[i]
            (b.index, b.bytes, b.first_seq, b.first_ts, b.last_seq, b.last_ts, deleted, b.ttls,
             b.schedules) = blocks[i]
            b.deleted = deleted.set
        with nogil:
            bad = index_encode(&s, 0, 0, &out, &n)
        if bad:
            raise MemoryError
        return PyBytes_FromStringAndSize(<const char *> out, n)
    finally:
        free(out)
        free(s.blocks)
        stree_clear(&tree)


cdef int index_load(IndexState *s, STree *tree, bytes data) except -1:
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
    cdef size_t n = len(data)
    cdef int bad
    memset(s, 0, sizeof(s[0]))
    stree_init(tree, sizeof(SimpleState))
    s.subjects = tree
    with nogil:
        bad = index_decode(s, p, n)
    if bad == CODEC_NO_MEMORY:
        raise MemoryError
    if bad:
        raise ValueError("not an index")
    return 0


def decode_index(bytes data not None):
    cdef IndexState s
    cdef STree tree
    cdef STreeIter it
    cdef IndexBlock *b
    cdef SimpleState *value
    cdef SequenceSet deleted
    cdef size_t i
    index_load(&s, &tree, data)
    try:
        subjects = []
        stree_iter(&it, &tree, NULL, 0)
        while stree_next(&it):
            value = <SimpleState *> it.value
            subjects.append((it.subject[:it.subject_n], value.msgs, value.first_block, value.last_block))
        stree_end(&it)
        blocks = []
        for i in range(s.n_blocks):
            b = &s.blocks[i]
            deleted = SequenceSet.__new__(SequenceSet)
            deleted.set = b.deleted
            memset(&b.deleted, 0, sizeof(b.deleted))
            blocks.append((
                b.index, b.bytes, b.first_seq, b.first_ts, b.last_seq, b.last_ts, deleted, b.ttls, b.schedules,
            ))
        state = (s.msgs, s.bytes, s.first_seq, s.first_ts, s.last_seq, s.last_ts)
        return state, subjects, blocks, (s.last_block, int(s.last_checksum).to_bytes(8, "little"))
    finally:
        index_free(&s)
        stree_clear(&tree)


def encode_consumer(
    tuple delivered not None, tuple ack_floor not None, list pending not None, list redelivered not None, int64_t now,
) -> bytes:
    cdef ConsumerSnapshot s
    cdef size_t i
    memset(&s, 0, sizeof(s))
    s.n_pending = len(pending)
    s.n_redelivered = len(redelivered)
    s.pending = <PendingEntry *> calloc(s.n_pending + 1, sizeof(PendingEntry))
    s.redelivered = <RedeliveredEntry *> calloc(s.n_redelivered + 1, sizeof(RedeliveredEntry))
    try:
        if s.pending == NULL or s.redelivered == NULL:
            raise MemoryError
        s.delivered_consumer, s.delivered_stream = delivered
        s.floor_consumer, s.floor_stream = ack_floor
        for i in range(s.n_pending):
            s.pending[i].stream_seq, s.pending[i].consumer_seq, s.pending[i].ts = pending[i]
        for i in range(s.n_redelivered):
            s.redelivered[i].seq, s.redelivered[i].count = redelivered[i]
        encoded = PyBytes_FromStringAndSize(NULL, consumer_bound(&s))
        return encoded[:consumer_encode(&s, now, <uint8_t *> PyBytes_AS_STRING(encoded))]
    finally:
        consumer_free(&s)


def decode_consumer(bytes data not None):
    cdef ConsumerSnapshot s
    cdef size_t i
    memset(&s, 0, sizeof(s))
    cdef int bad = consumer_decode(&s, <const uint8_t *> PyBytes_AS_STRING(data), len(data))
    if bad == CODEC_NO_MEMORY:
        raise MemoryError
    if bad:
        raise ValueError("not the state of a consumer")
    try:
        return (
            (s.delivered_consumer, s.delivered_stream),
            (s.floor_consumer, s.floor_stream),
            [(s.pending[i].stream_seq, s.pending[i].consumer_seq, s.pending[i].ts) for i in range(s.n_pending)],
            [(s.redelivered[i].seq, s.redelivered[i].count) for i in range(s.n_redelivered)],
        )
    finally:
        consumer_free(&s)
