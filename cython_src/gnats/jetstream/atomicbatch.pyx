"""Batches that are stored together or not at all; see atomicbatch.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.headers cimport add_header, remove_header
from gnats.core.slice cimport Slice
from gnats.core.subject cimport hash_bytes
from gnats.includes.atomics cimport add64, load64
from gnats.jetstream.batchchecks cimport Before, Staged, check_batched, store_batched, stored_size
from gnats.jetstream.batching cimport (
    ABANDONED_INCOMPLETE,
    ABANDONED_LARGE,
    ABANDONED_UNSUPPORTED,
    AbandonReason,
    advise_abandoned,
    may_batch,
    open_batch,
)
from gnats.jetstream.batchtable cimport MAX_BATCH_ID, OpenBatch, batch_find, batch_remove, batch_touch
from gnats.jetstream.engine cimport Local, publish_later
from gnats.jetstream.headers cimport (
    H_BATCH_COMMIT,
    H_BATCH_ID,
    H_BATCH_SEQ,
    H_EXPECTED_LAST_MSG_ID,
    H_MSG_ID,
    H_REQUIRED_API_LEVEL,
    H_SCHEDULER,
    H_STREAM_SOURCE,
    MsgHeaders,
    has_header,
    header_set,
    level_too_high,
    parse_headers,
    put_uint64,
)
from gnats.jetstream.inbound cimport (
    MSG_DUPLICATE,
    MSG_STORED,
    Checked,
    Inbound,
    Outcome,
    refuse,
    refuse_with,
    transform_subject,
)
from gnats.jetstream.puback cimport (
    ERR_ACCOUNT_RESOURCES,
    ERR_ATOMIC_DISABLED,
    ERR_ATOMIC_DUPLICATE,
    ERR_ATOMIC_IN_FLIGHT,
    ERR_ATOMIC_INCOMPLETE,
    ERR_ATOMIC_INVALID_COMMIT,
    ERR_ATOMIC_INVALID_ID,
    ERR_ATOMIC_MISSING_SEQ,
    ERR_ATOMIC_TOO_LARGE,
    ERR_ATOMIC_UNSUPPORTED_HEADER,
    ERR_REQUIRED_API_LEVEL,
)
from gnats.jetstream.storing cimport acknowledge
from gnats.jetstream.streamcore cimport StreamCore
from gnats.jetstream.usage cimport usage_exceeds
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.durations cimport parse_uint64
from gnats.store.reading cimport is_marked_whole

cdef enum:
    MAX_KEPT = 256 * 1024 * 1024      # bytes that all batches of a stream may wait with
    MAX_KEPT_ALL = 512 * 1024 * 1024  # and those of all streams of the server


cdef struct AtomicBatch:
    OpenBatch open
    Staged *first
    Staged *last
    uint64_t n
    size_t bytes


cdef void drop_atomic_batch(StreamCore s, OpenBatch *open) noexcept nogil:
    cdef AtomicBatch *b = <AtomicBatch *> open
    cdef Staged *staged = b.first
    cdef Staged *following
    batch_remove(&s.atomic_batches, open)
    s.batch_bytes -= b.bytes
    add64(&s.batch_limits.kept, <uint64_t> 0 - b.bytes)
    add64(&s.batch_limits.atomic_open, <uint64_t> -1)
    while staged != NULL:
        following = staged.next
        free(staged.transformed)
        free(staged.m.owned)
        free(staged.m.counted)
        free(staged)
        staged = following
    free(b)


cdef void drop_atomic_batches(StreamCore s) noexcept nogil:
    while s.atomic_batches.oldest != NULL:
        drop_atomic_batch(s, s.atomic_batches.oldest)


cdef bint too_large(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef char[20] digits
    return refuse_with(s, local, m, ERR_ATOMIC_TOO_LARGE, digits, put_uint64(digits, load64(&s.batch_limits.max_size)))


cdef void abandon(StreamCore s, AtomicBatch *b, AbandonReason why) noexcept nogil:
    advise_abandoned(s, why, b.open.id, b.open.id_n)
    drop_atomic_batch(s, &b.open)


# -- one message of a batch --------------------------------------------------------------------------------------------

cdef bint process_atomic_batch_msg(StreamCore s, Local *local, Inbound *m) noexcept nogil:
    cdef const Slice *word = &m.h.values[H_BATCH_COMMIT]
    cdef AtomicBatch *b
    cdef uint64_t seq
    cdef bint commit = has_header(&m.h, H_BATCH_COMMIT), at_end, purged = False
    if not may_batch(s, local, m):
        return False
    if not s.cfg.allow_atomic:
        return refuse(s, local, m, ERR_ATOMIC_DISABLED)
    if m.h.values[H_BATCH_ID].n > MAX_BATCH_ID:
        return refuse(s, local, m, ERR_ATOMIC_INVALID_ID)
    if not header_set(&m.h, H_BATCH_SEQ) or not parse_uint64(
            m.h.values[H_BATCH_SEQ].p, m.h.values[H_BATCH_SEQ].n, &seq):
        return refuse(s, local, m, ERR_ATOMIC_MISSING_SEQ)
    at_end = commit and word.n == 3 and memcmp(word.p, b"eob", 3) == 0
    b = find_or_begin(s, local, m, seq, at_end)
    if b == NULL:
        return False
    if commit and not at_end and not (word.n == 1 and word.p[0] == c'1'):
        drop_atomic_batch(s, &b.open)
        return refuse(s, local, m, ERR_ATOMIC_INVALID_COMMIT)
    if header_set(&m.h, H_REQUIRED_API_LEVEL) and level_too_high(m.hdr, m.hdr_n):
        abandon(s, b, ABANDONED_UNSUPPORTED)
        return refuse(s, local, m, ERR_REQUIRED_API_LEVEL)
    batch_touch(&s.atomic_batches, &b.open, local.ps.now)
    b.n += 1
    if b.n != seq or (seq == 1 and at_end):
        abandon(s, b, ABANDONED_INCOMPLETE)
        return refuse(s, local, m, ERR_ATOMIC_INCOMPLETE)
    if seq - at_end > load64(&s.batch_limits.max_size):
        abandon(s, b, ABANDONED_LARGE)
        return too_large(s, local, m)
    if not at_end and not stage(s, b, m):
        abandon(s, b, ABANDONED_INCOMPLETE)
        return refuse(s, local, m, ERR_ATOMIC_INCOMPLETE)
    if not commit:
        if not s.cfg.no_ack and m.reply.n:
            publish_later(local, s, m.reply.p, m.reply.n, NULL, 0, NULL, 0, False)
        return False
    if at_end:
        b.n -= 1
    if (not at_end or mark_commit(b.last)) and check_batch(s, local, b, m):
        purged = store_batch(s, local, b, &m.reply)
    drop_atomic_batch(s, &b.open)
    return purged


cdef AtomicBatch *find_or_begin(
    StreamCore s, Local *local, const Inbound *m, uint64_t seq, bint at_end
) noexcept nogil:
    """The message's batch, a new one for the first; NULL: it has been told why there is none."""
    cdef const Slice *id = &m.h.values[H_BATCH_ID]
    cdef AtomicBatch *b = <AtomicBatch *> batch_find(&s.atomic_batches, id.p, id.n)
    if b == NULL and seq == 1:
        b = <AtomicBatch *> open_batch(
            s, &s.atomic_batches, sizeof(AtomicBatch), id.p, id.n, load64(&s.batch_limits.atomic_per_stream),
            &s.batch_limits.atomic_open, load64(&s.batch_limits.atomic_total), local.ps.now)
        if b == NULL:
            refuse(s, local, m, ERR_ATOMIC_IN_FLIGHT)
    elif b == NULL and seq - at_end > load64(&s.batch_limits.max_size):
        too_large(s, local, m)
    elif b == NULL:
        refuse(s, local, m, ERR_ATOMIC_INCOMPLETE)
    return b


cdef bint stage(StreamCore s, AtomicBatch *b, const Inbound *m) noexcept nogil:
    """Keep a copy; False without memory for it."""
    cdef size_t n = sizeof(Staged) + m.subject.n + m.hdr_n + m.n
    cdef Staged *staged
    cdef char *p
    if s.batch_bytes + n > MAX_KEPT:
        return False
    if add64(&s.batch_limits.kept, n) + n > MAX_KEPT_ALL:
        add64(&s.batch_limits.kept, <uint64_t> 0 - n)
        return False
    staged = <Staged *> calloc(1, n)
    if staged == NULL:
        add64(&s.batch_limits.kept, <uint64_t> 0 - n)
        return False
    p = <char *> (staged + 1)
    memcpy(p, m.subject.p, m.subject.n)
    staged.m.subject.p = p
    staged.m.subject.n = m.subject.n
    p += m.subject.n
    memcpy(p, m.hdr, m.hdr_n)
    staged.m.hdr = p
    staged.m.hdr_n = m.hdr_n
    if header_set(&m.h, H_REQUIRED_API_LEVEL):
        staged.m.hdr_n = remove_header(p, m.hdr_n, b"Nats-Required-Api-Level", 23)
    p += m.hdr_n
    memcpy(p, m.msg, m.n)
    staged.m.msg = p
    staged.m.n = m.n
    parse_headers(staged.m.hdr, staged.m.hdr_n, &staged.m.h)
    if b.last == NULL:
        b.first = staged
    else:
        b.last.next = staged
    b.last = staged
    b.bytes += n
    s.batch_bytes += n
    return True


cdef bint mark_commit(Staged *last) noexcept nogil:
    """A batch that ended with a message of its own: the last one that is stored gets the header."""
    cdef char *hdr = <char *> malloc(last.m.hdr_n + 128)
    if hdr == NULL:
        return False
    last.m.hdr_n = add_header(hdr, last.m.hdr, last.m.hdr_n, b"Nats-Batch-Commit", 17, b"1", 1)
    last.m.owned = last.m.hdr = hdr
    parse_headers(last.m.hdr, last.m.hdr_n, &last.m.h)
    return True


# -- commit ------------------------------------------------------------------------------------------------------------

cdef bint check_batch(StreamCore s, Local *local, AtomicBatch *b, const Inbound *commit) noexcept nogil:
    """May all of it be stored? If not, the reply of `commit` has been told why."""
    cdef Staged *staged = b.first
    cdef Before before
    cdef Outcome outcome
    cdef uint64_t _
    before.first = b.first
    before.n = before.bytes = 0
    while staged != NULL:
        transform_subject(s, local, &staged.m, &staged.transformed)
        staged.subject_hash = hash_bytes(staged.m.subject.p, staged.m.subject.n)
        if header_set(&staged.m.h, H_MSG_ID):
            staged.id_hash = hash_bytes(staged.m.h.values[H_MSG_ID].p, staged.m.h.values[H_MSG_ID].n) | 1
        if header_set(&staged.m.h, H_EXPECTED_LAST_MSG_ID):
            return refuse_with(
                s, local, commit, ERR_ATOMIC_UNSUPPORTED_HEADER, b"Nats-Expected-Last-Msg-Id", 25)
        staged.m.reply = commit.reply
        before.until = staged
        outcome = check_batched(s, local, &staged.m, &before, &_)
        if outcome == MSG_DUPLICATE:
            return refuse(s, local, commit, ERR_ATOMIC_DUPLICATE)
        if outcome != MSG_STORED:
            return False
        before.n += 1
        before.bytes += stored_size(s, &staged.m)
        staged = staged.next
    if s.account_usage is not None and usage_exceeds(s.account_usage, s.cfg.memory, <int64_t> before.bytes):
        return refuse(s, local, commit, ERR_ACCOUNT_RESOURCES)
    return True


cdef bint store_batch(StreamCore s, Local *local, AtomicBatch *b, const Slice *reply) noexcept nogil:
    """Store all of it; the last one is replied to. True when others have been purged."""
    cdef Staged *staged = b.first
    cdef Checked c
    cdef bint purged = False
    while staged != NULL:
        staged.m.reply.n = 0
        if staged.next == NULL:
            staged.m.reply = reply[0]
            staged.m.batch.p = b.open.id
            staged.m.batch.n = b.open.id_n
            staged.m.batch_n = b.n
        purged |= store_batched(s, local, &staged.m, &c, True)
        if c.outcome == MSG_STORED:
            acknowledge(s, local, &staged.m)
        staged = staged.next
    return purged


# -- after a start -----------------------------------------------------------------------------------------------------

cdef bint is_part(StreamCore s, uint64_t seq, const Slice *id, uint64_t batch_seq) noexcept nogil:
    """Is a stored message this one of this batch?"""
    cdef MsgHeaders h
    cdef StoreMsg sm
    cdef uint64_t found
    if s.store.load(seq, &sm) != STORE_OK or not sm.hdr_n:
        return False
    parse_headers(<char *> sm.hdr, sm.hdr_n, &h)
    return (
        has_header(&h, H_BATCH_ID) and h.values[H_BATCH_ID].n == id.n
        and memcmp(h.values[H_BATCH_ID].p, id.p, id.n) == 0 and header_set(&h, H_BATCH_SEQ)
        and parse_uint64(h.values[H_BATCH_SEQ].p, h.values[H_BATCH_SEQ].n, &found) and found == batch_seq
        and not has_header(&h, H_BATCH_COMMIT) and not has_header(&h, H_STREAM_SOURCE)
        # of a schedule that was in a batch, its message has all of the schedule's other headers
        and not has_header(&h, H_SCHEDULER)
        # it was stored alone, or in a fast batch
        and not is_marked_whole(s.store, seq))


cdef uint64_t drop_partial_batch(StreamCore s) noexcept nogil:
    cdef char[MAX_BATCH_ID] kept
    cdef MsgHeaders h
    cdef StoreMsg sm
    cdef Slice id
    cdef uint64_t seq, i, gone = 0
    cdef uint64_t last = s.store.last_seq
    if not s.cfg.allow_atomic or not s.store.msgs or s.store.load(last, &sm) != STORE_OK or not sm.hdr_n:
        return 0
    parse_headers(<char *> sm.hdr, sm.hdr_n, &h)
    id = h.values[H_BATCH_ID]
    if not header_set(&h, H_BATCH_ID) or id.n > MAX_BATCH_ID:
        return 0
    if not header_set(&h, H_BATCH_SEQ) or not parse_uint64(h.values[H_BATCH_SEQ].p, h.values[H_BATCH_SEQ].n, &seq):
        return 0
    if seq == 0 or seq > last:
        return 0
    if last - seq < s.store.indexed_seq:
        # index.db is written when no batch is being stored: what it knows is no part
        return 0
    memcpy(kept, id.p, id.n)
    id.p = kept
    for i in range(seq):
        # all of it: nothing goes because of what a header of one message says
        if not is_part(s, last - i, &id, seq - i):
            return 0
    if s.store.truncate(last - seq, &gone) != STORE_OK:
        return 0
    return gone
