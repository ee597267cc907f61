"""Storing messages; see writing.pxd."""
from libc.errno cimport ENOMEM
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from gnats.core.messages.headers cimport named_header
from gnats.includes.atomics cimport likely, unlikely
from gnats.includes.layout cimport static_assert
from gnats.store.base cimport (
    STORE_CLOSED,
    STORE_FAILED,
    STORE_MAX_BYTES,
    STORE_MAX_MSGS,
    STORE_MAX_MSGS_PER_SUBJECT,
    STORE_NO_MEMORY,
    STORE_NO_SEQ,
    STORE_NOT_FOUND,
    STORE_OK,
    STORE_SEQ_MISMATCH,
    STORE_TOO_LARGE,
    blk_select,
    first_of,
    memory_size,
    msg_size,
    reserve,
    roll,
    subject_stored,
)
from gnats.store.block cimport (
    MAX_GAP,
    NO_SLOT,
    MsgBlock,
    block_commit,
    block_encode,
    block_push_slot,
    block_record,
    env_fail,
    slot_of,
)
from gnats.store.expiry cimport ttl_stored
from gnats.store.format.record cimport (
    EBIT,
    EMPTY_RECORD,
    MAX_RECORD,
    MAX_SEQ,
    MAX_SUBJECT,
    Record,
    record_encode_mark,
    record_size,
)
from gnats.store.index.seqset cimport seqset_delete_range, seqset_insert_range
from gnats.store.index.stree cimport MAX_TREE_SUBJECT, SimpleState, stree_find, stree_insert
from gnats.store.removing cimport enforce_bytes, enforce_msgs, remove_msg
from gnats.store.scheduling cimport schedule_stored

cdef enum:
    # A skip that would exceed one of these begins a new block.
    MAX_SKIPS = 64 * 1024       # deleted sequences of a block with messages
    MAX_SPAN = 1 << 30          # sequences from a block's first slot on; MsgBlock.rel has 32 bits


cdef bint has_rollup(const char *hdr, uint32_t n) noexcept nogil:
    # discard_new_per does not refuse a rollup: storing it removes the older messages.
    return named_header(hdr, n, b"Nats-Rollup").n != 0


cdef int refuse_new(
    StoreBase s, SimpleState *st, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
    uint64_t size,
) noexcept nogil:
    # Discard new refuses a message over a limit, unless max_msgs_per makes room by removing an older one.
    cdef bint makes_room = False
    cdef MsgBlock *b
    cdef Record r
    cdef uint32_t k
    cdef uint64_t seq
    if s.limits.max_msgs_per > 0 and st != NULL and st.msgs >= <uint64_t> s.limits.max_msgs_per:
        if s.limits.discard_new_per and not has_rollup(hdr, hdr_n):
            return STORE_MAX_MSGS_PER_SUBJECT
        makes_room = True
    if s.limits.max_msgs > 0 and s.msgs >= <uint64_t> s.limits.max_msgs and not makes_room:
        return STORE_MAX_MSGS
    if s.limits.max_bytes > 0 and s.bytes + size > <uint64_t> s.limits.max_bytes:
        if not makes_room:
            return STORE_MAX_BYTES
        seq = first_of(s, st, subject, subject_n)
        b = blk_select(s, seq)
        if b == NULL or not b.indexed:
            return STORE_MAX_BYTES
        k = slot_of(b, seq)
        if k == NO_SLOT or not block_record(&s.env, b, k, &r) or msg_size(s, &r) < size:
            return STORE_MAX_BYTES
    return STORE_OK


cdef int store_msg(
    StoreBase s, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
    const char *msg, uint32_t msg_n, uint64_t seq, int64_t ts, int64_t ttl, bint check_new,
    bint mark_whole,
) noexcept nogil:
    cdef uint64_t rl = record_size(subject_n, hdr_n, msg_n), size, first
    cdef SimpleState *st = NULL
    cdef MsgBlock *b
    cdef Record r
    cdef char *p
    cdef int error = STORE_OK
    cdef bint was_there
    cdef size_t mark = EMPTY_RECORD if mark_whole and not s.env.in_memory else 0
    if unlikely(s.closed):
        return STORE_CLOSED
    static_assert(<int> MAX_SUBJECT <= <int> MAX_TREE_SUBJECT)
    if unlikely(rl > MAX_RECORD or subject_n > MAX_SUBJECT):
        return STORE_TOO_LARGE
    size = memory_size(subject_n, hdr_n, msg_n) if s.env.in_memory else rl
    if check_new and s.limits.discard_new:
        st = <SimpleState *> stree_find(&s.subjects, subject, subject_n)
        error = refuse_new(s, st, subject, subject_n, hdr, hdr_n, size)
        if error != STORE_OK:
            return error
    if seq != s.last_seq + 1:
        if seq > 0:
            return STORE_SEQ_MISMATCH
        seq = s.last_seq + 1
    if unlikely(seq > MAX_SEQ):
        return STORE_NO_SEQ
    if unlikely(s.env.error):
        return STORE_FAILED
    p = reserve(s, rl + mark, &error)
    if unlikely(p == NULL):
        return error
    if unlikely(seq != s.last_seq + 1):
        return STORE_FAILED    # a failed flush dropped the records that waited: this sequence is not the next one now
    b = s.last
    if unlikely(block_push_slot(b, seq, <uint32_t> b.rbytes) != 0):
        return STORE_NO_MEMORY
    if subject_n:
        st = <SimpleState *> stree_insert(&s.subjects, subject, subject_n, &was_there)
        if unlikely(st == NULL):
            b.n_slots -= 1
            return STORE_NO_MEMORY
    block_commit(
        b, rl, block_encode(&s.env, b, p, seq, ts, subject, subject_n, hdr, hdr_n, msg, msg_n))
    if unlikely(mark):
        block_commit(b, mark, record_encode_mark(p + rl, &b.key, 0, ts, EBIT))
    if st != NULL:
        subject_stored(s, st, seq, b.index)
    if b.msgs == 0:
        b.first_seq = seq
        b.first_ts = ts
    b.last_seq = seq
    b.last_ts = ts
    b.msgs += 1
    b.bytes += size
    if s.msgs == 0:
        s.first_seq = seq
        s.first_ts = ts
    s.last_seq = seq
    s.last_ts = ts
    s.msgs += 1
    s.bytes += size
    s.dirty += 1
    if ttl > 0:
        b.ttls += 1
        ttl_stored(s, seq, ts, ttl)
    if unlikely(s.limits.allow_schedules):
        r.seq = seq
        r.ts = ts
        r.subject = subject
        r.subject_n = <uint16_t> subject_n
        r.hdr = hdr
        r.hdr_n = hdr_n
        schedule_stored(s, b, &r)
    if s.limits.max_msgs_per > 0 and st != NULL:
        while st.msgs > <uint64_t> s.limits.max_msgs_per:
            first = first_of(s, st, subject, subject_n)
            if first == 0:
                break
            error = remove_msg(s, first, False, True)
            if error != STORE_OK and error != STORE_NOT_FOUND:
                return STORE_OK if s.env.error == 0 else STORE_FAILED
            if error == STORE_NOT_FOUND:
                break
    # The message is stored; a limit that cannot be enforced now is enforced with the next one.
    if s.limits.max_msgs > 0 and s.msgs > <uint64_t> s.limits.max_msgs and not s.limits.discard_new:
        enforce_msgs(s)
    if s.limits.max_bytes > 0 and s.bytes > <uint64_t> s.limits.max_bytes and not s.limits.discard_new:
        enforce_bytes(s)
    return STORE_OK if likely(s.env.error == 0) else STORE_FAILED


cdef int skip_msgs(StoreBase s, uint64_t seq, uint64_t n, int64_t now) noexcept nogil:
    cdef uint64_t last
    cdef int64_t ts
    cdef MsgBlock *b
    cdef char *p
    cdef int error = STORE_OK
    if s.closed:
        return STORE_CLOSED
    if s.env.error:
        return STORE_FAILED
    if seq != s.last_seq + 1:
        if seq > 0:
            return STORE_SEQ_MISMATCH
        seq = s.last_seq + 1
    if n == 0:
        return STORE_OK
    if seq > MAX_SEQ or n - 1 > MAX_SEQ - seq:
        return STORE_NO_SEQ
    last = seq + n - 1
    ts = s.last_ts if s.last_ts else now
    b = s.last
    if b != NULL and (
            b.msgs and b.dmap.size + n > MAX_SKIPS or b.rbytes and n > MAX_GAP
            or b.n_slots and last - b.base_seq > MAX_SPAN):
        error = roll(s)
        if error != STORE_OK:
            return error
    p = reserve(s, EMPTY_RECORD, &error)
    if p == NULL:
        return error
    b = s.last
    if b.msgs and seqset_insert_range(&b.dmap, seq, last) < 0:
        if seqset_delete_range(&b.dmap, seq, last) < 0:
            # A message with a sequence that stays deleted could not be removed.
            env_fail(&s.env, ENOMEM, "skip", b.index)
        return STORE_NO_MEMORY
    block_commit(b, EMPTY_RECORD, block_encode(&s.env, b, p, last | EBIT, ts, p, 0, p, 0, p, 0))
    b.last_seq = last
    b.last_ts = ts
    if b.msgs == 0:
        b.first_seq = last + 1
        b.first_ts = 0
    s.last_seq = last
    s.last_ts = ts
    if s.msgs == 0:
        s.first_seq = last + 1
        s.first_ts = 0
    s.dirty += 1
    return STORE_OK
