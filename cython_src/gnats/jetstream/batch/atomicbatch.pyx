"""Atomic batches; see atomicbatch.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport add64, load64
from gnats.includes.text cimport is_text
from gnats.jetstream.batch.batching cimport (
    ABANDONED_INCOMPLETE,
    ABANDONED_LARGE,
    ABANDONED_UNSUPPORTED,
    AbandonReason,
    advise_abandoned,
    open_batch,
)
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.engine.outbox cimport publish_later
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.publish.checks cimport check_account_usage, check_admission, check_ahead
from gnats.jetstream.publish.entries cimport make_entry
from gnats.jetstream.publish.errors cimport (
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
from gnats.jetstream.publish.inbound cimport Inbound, inbound_free, inbound_init, stored_size, transform_subject
from gnats.jetstream.publish.inflight cimport InFlight, Staged, flight_begin, log_in_flight, stage_hashes
from gnats.jetstream.publish.refusal cimport (
    ANSWER,
    Refusal,
    answer_refused,
    refuse,
    refuse_number,
    refuse_silently,
    refuse_text,
)
from gnats.jetstream.state.batchtable cimport MAX_BATCH_ID, OpenBatch, batch_find, batch_remove, batch_touch
from gnats.jetstream.state.entry cimport (
    ENDS_ATOMIC,
    MSG_DUPLICATE,
    MSG_REFUSED,
    MSG_STORED,
    OF_ATOMIC,
    Outcome,
    StreamEntry,
)
from gnats.jetstream.state.headers cimport (
    H_BATCH_COMMIT,
    H_BATCH_ID,
    H_BATCH_SEQ,
    H_EXPECTED_LAST_MSG_ID,
    H_REQUIRED_API_LEVEL,
    H_SCHEDULER,
    H_STREAM_SOURCE,
    MsgHeaders,
    has_header,
    header_set,
    level_too_high,
    parse_headers,
    with_text_header,
    without_header,
)
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.reading cimport is_marked_whole
from gnats.store.times.durations cimport parse_uint64

cdef enum:
    MAX_KEPT = 256 * 1024 * 1024      # bytes of staged messages in one stream
    MAX_KEPT_ALL = 512 * 1024 * 1024  # bytes of staged messages in all streams of the server


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
        inbound_free(&staged.m)
        free(staged)
        staged = following
    free(b)


cdef void drop_atomic_batches(StreamCore s) noexcept nogil:
    while s.atomic_batches.oldest != NULL:
        drop_atomic_batch(s, s.atomic_batches.oldest)


cdef void abandon(StreamCore s, AtomicBatch *b, AbandonReason why) noexcept nogil:
    advise_abandoned(s, why, b.open.id, b.open.id_n)
    drop_atomic_batch(s, &b.open)


# -- one message of an atomic batch ------------------------------------------------------------------------------------

cdef Outcome process_atomic_batch_msg(StreamCore s, JsPoller *jp, Inbound *m) noexcept nogil:
    cdef Refusal r
    cdef Outcome outcome = check_admission(s, m, &r)
    if outcome == MSG_STORED:
        outcome = add_to_batch(s, jp, m, &r)
    if outcome == MSG_REFUSED:
        answer_refused(s, jp, m.trace, &m.reply, &r, ANSWER, 0)
    return outcome


cdef Outcome add_to_batch(StreamCore s, JsPoller *jp, Inbound *m, Refusal *r) noexcept nogil:
    cdef const Slice *word = &m.h.values[H_BATCH_COMMIT]
    cdef AtomicBatch *b
    cdef uint64_t seq
    cdef bint commit = has_header(&m.h, H_BATCH_COMMIT)
    cdef bint at_end = commit and is_text(word.p, word.n, b"eob")
    cdef Outcome outcome = MSG_REFUSED
    if not s.cfg.allow_atomic:
        refuse(r, ERR_ATOMIC_DISABLED)
    elif m.h.values[H_BATCH_ID].n > MAX_BATCH_ID:
        refuse(r, ERR_ATOMIC_INVALID_ID)
    elif not header_set(&m.h, H_BATCH_SEQ) or not parse_uint64(
            m.h.values[H_BATCH_SEQ].p, m.h.values[H_BATCH_SEQ].n, &seq):
        refuse(r, ERR_ATOMIC_MISSING_SEQ)
    else:
        b = find_or_begin(s, jp, m, seq, at_end, r)
        if b == NULL or not extend(s, jp, b, m, seq, at_end, r):
            return MSG_REFUSED
        if not commit:
            if not s.cfg.no_ack and m.reply.n:
                publish_later(jp, s, m.reply.p, m.reply.n, NULL, 0, NULL, 0, False)
            return MSG_STORED
        if at_end:
            b.n -= 1
        if not at_end or mark_commit(b.last):
            outcome = commit_batch(s, jp, b, m)
        else:
            report_shortage(jp.ps)
        refuse_silently(r)   # the commit has been answered
        drop_atomic_batch(s, &b.open)
    return outcome


cdef bint extend(
    StreamCore s, JsPoller *jp, AtomicBatch *b, Inbound *m, uint64_t seq, bint at_end, Refusal *r
) noexcept nogil:
    """Add a message to its atomic batch. Return False, with the reason in r, when it has given the batch up instead.
    """
    cdef const Slice *word = &m.h.values[H_BATCH_COMMIT]
    if has_header(&m.h, H_BATCH_COMMIT) and not at_end and not is_text(word.p, word.n, b"1"):
        drop_atomic_batch(s, &b.open)
        return refuse(r, ERR_ATOMIC_INVALID_COMMIT)
    if header_set(&m.h, H_REQUIRED_API_LEVEL) and level_too_high(m.hdr, m.hdr_n):
        abandon(s, b, ABANDONED_UNSUPPORTED)
        return refuse(r, ERR_REQUIRED_API_LEVEL)
    batch_touch(&s.atomic_batches, &b.open, jp.ps.now)
    b.n += 1
    if b.n != seq or (seq == 1 and at_end):
        abandon(s, b, ABANDONED_INCOMPLETE)
        return refuse(r, ERR_ATOMIC_INCOMPLETE)
    if seq - at_end > load64(&s.batch_limits.max_size):
        abandon(s, b, ABANDONED_LARGE)
        return refuse_number(r, ERR_ATOMIC_TOO_LARGE, load64(&s.batch_limits.max_size))
    if not at_end and not stage(s, b, m):
        abandon(s, b, ABANDONED_INCOMPLETE)
        return refuse(r, ERR_ATOMIC_INCOMPLETE)
    return True


cdef AtomicBatch *find_or_begin(
    StreamCore s, JsPoller *jp, const Inbound *m, uint64_t seq, bint at_end, Refusal *r
) noexcept nogil:
    """Find the message's atomic batch; begin one for its first message. NULL: refused, with the reason in r."""
    cdef const Slice *id = &m.h.values[H_BATCH_ID]
    cdef AtomicBatch *b = <AtomicBatch *> batch_find(&s.atomic_batches, id.p, id.n)
    if b == NULL and seq == 1:
        b = <AtomicBatch *> open_batch(
            s, &s.atomic_batches, sizeof(AtomicBatch), id.p, id.n, load64(&s.batch_limits.atomic_per_stream),
            &s.batch_limits.atomic_open, load64(&s.batch_limits.atomic_total), jp.ps.now)
        if b == NULL:
            refuse(r, ERR_ATOMIC_IN_FLIGHT)
    elif b == NULL and seq - at_end > load64(&s.batch_limits.max_size):
        refuse_number(r, ERR_ATOMIC_TOO_LARGE, load64(&s.batch_limits.max_size))
    elif b == NULL:
        refuse(r, ERR_ATOMIC_INCOMPLETE)
    return b


cdef bint stage(StreamCore s, AtomicBatch *b, const Inbound *m) noexcept nogil:
    """Keep a copy of the message. False when out of memory, or over a limit of staged bytes."""
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
    inbound_init(&staged.m)
    staged.m.subject.p = p
    staged.m.subject.n = m.subject.n
    p += m.subject.n
    memcpy(p, m.hdr, m.hdr_n)
    staged.m.hdr = p
    staged.m.hdr_n = m.hdr_n
    if header_set(&m.h, H_REQUIRED_API_LEVEL):
        staged.m.hdr_n = without_header(p, m.hdr_n, b"Nats-Required-Api-Level")
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
    """Add Nats-Batch-Commit to the last staged message, when the message that commits is not stored itself (eob).
    False when out of memory."""
    cdef char *hdr = <char *> malloc(last.m.hdr_n + 128)
    if hdr == NULL:
        return False
    last.m.hdr_n = with_text_header(hdr, last.m.hdr, last.m.hdr_n, b"Nats-Batch-Commit", b"1")
    last.m.owned = last.m.hdr = hdr
    parse_headers(last.m.hdr, last.m.hdr_n, &last.m.h)
    return True


# -- commit ------------------------------------------------------------------------------------------------------------

cdef bint check_batch(StreamCore s, JsPoller *jp, AtomicBatch *b, Refusal *r) noexcept nogil:
    """Check all messages, each as if those before it were stored. False: r has the reason."""
    cdef Staged *staged = b.first
    cdef InFlight before
    cdef Outcome outcome
    flight_begin(&before, log_in_flight(s))
    before.first = b.first
    while staged != NULL:
        if not transform_subject(s, jp, &staged.m):
            return refuse_silently(r)
        stage_hashes(staged)
        if header_set(&staged.m.h, H_EXPECTED_LAST_MSG_ID):
            return refuse_text(r, ERR_ATOMIC_UNSUPPORTED_HEADER, b"Nats-Expected-Last-Msg-Id")
        before.until = staged
        outcome = check_ahead(s, &staged.m, &before, r)
        if outcome == MSG_DUPLICATE:
            return refuse(r, ERR_ATOMIC_DUPLICATE)
        if outcome != MSG_STORED:
            return False
        before.n += 1
        before.bytes += stored_size(s, staged.m.subject.n, staged.m.hdr_n, staged.m.n)
        staged = staged.next
    return check_account_usage(s, before.bytes, r)


cdef Outcome commit_batch(StreamCore s, JsPoller *jp, AtomicBatch *b, const Inbound *commit) noexcept nogil:
    """Check the atomic batch, then have the log store all of it or nothing; answer the commit."""
    cdef Refusal r
    if check_batch(s, jp, b, &r) and make_entries(s, jp, b, commit, &r):
        return s.log.propose(s, jp, &b.first.entry)
    # here, because r may borrow text from the staged messages
    answer_refused(s, jp, commit.trace, &commit.reply, &r, ANSWER, 0)
    return MSG_REFUSED


cdef bint make_entries(
    StreamCore s, JsPoller *jp, AtomicBatch *b, const Inbound *commit, Refusal *r
) noexcept nogil:
    """Make linked entries of all messages, with the commit's trace and reply subject. False: r has the reason."""
    cdef Staged *staged = b.first
    cdef StreamEntry *e = NULL
    while staged != NULL:
        staged.m.trace = commit.trace
        staged.m.reply = commit.reply
        if not make_entry(s, jp, &staged.m, OF_ATOMIC, &staged.entry, r):
            return False
        if e != NULL:
            e.next = &staged.entry
        e = &staged.entry
        staged = staged.next
    e.part = ENDS_ATOMIC
    e.batch.p = b.open.id
    e.batch.n = b.open.id_n
    e.batch_n = b.n
    return True


# -- after a start -----------------------------------------------------------------------------------------------------

cdef bint is_part(StreamCore s, uint64_t seq, const Slice *id, uint64_t batch_seq) noexcept nogil:
    """Return whether the message at `seq` is the batch_seq-th of the atomic batch `id`, and not the committing one."""
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
        # a message made from a schedule has the schedule's headers, also those of its atomic batch
        and not has_header(&h, H_SCHEDULER)
        # the mark: it was stored alone, or in a fast batch
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
        # index.db is never written between the messages of one atomic batch, so a batch that reaches into it is whole
        return 0
    memcpy(kept, id.p, id.n)
    id.p = kept
    for i in range(seq):
        # Remove nothing unless all messages fit: the headers of one are a client's to write.
        if not is_part(s, last - i, &id, seq - i):
            return 0
    if s.store.truncate(last - seq, &gone) != STORE_OK:
        return 0
    return gone
