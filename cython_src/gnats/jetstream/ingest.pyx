"""Messages on their way into a stream; see ingest.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove

from gnats.core.headers cimport add_header, find_header, remove_header, remove_status
from gnats.core.message cimport Message
from gnats.core.msgtrace cimport TRACE_DUPLICATE, MsgTrace, trace_jetstream, trace_jetstream_error
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Subscription
from gnats.includes.atomics cimport unlikely
from gnats.jetstream.atomicbatch cimport process_atomic_batch_msg
from gnats.jetstream.counter cimport (
    COUNTER_BROKEN,
    COUNTER_OK,
    CounterError,
    Decimal,
    apply_increment,
    check_increment,
    read_decimal,
)
from gnats.jetstream.dedupe cimport dedupe_find
from gnats.jetstream.engine cimport Local, local_of
from gnats.jetstream.fastbatch cimport is_fast_batch, process_fast_batch_msg
from gnats.jetstream.headers cimport (
    H_BATCH_ID,
    H_EXPECTED_LAST_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ_SUBJ,
    H_EXPECTED_STREAM,
    H_INCR,
    H_MSG_ID,
    H_REQUEST_INFO,
    H_ROLLUP,
    H_STREAM_SOURCE,
    H_TTL,
    MsgHeaders,
    has_header,
    header_set,
    parse_headers,
)
from gnats.jetstream.inbound cimport (
    MAX_HEADER,
    MAX_RECORD,
    MSG_DUPLICATE,
    MSG_REFUSED,
    MSG_STORED,
    NO_ROLLUP,
    TOLD,
    Checked,
    Inbound,
    Outcome,
    Taken,
    check_last_msg_id,
    own_header,
    record_size,
    refuse,
    refuse_rollup,
    refuse_sequence,
    refuse_store,
    refuse_with,
    rollup_of,
    transform_subject,
)
from gnats.jetstream.puback cimport (
    ERR_COUNTER_BROKEN,
    ERR_EXPECTED_PER_SUBJECT_INVALID,
    ERR_HEADER_EXCEEDS_MAXIMUM,
    ERR_INCR_INVALID,
    ERR_INCR_MISSING,
    ERR_INSUFFICIENT_RESOURCES,
    ERR_MESSAGE_EXCEEDS_MAXIMUM,
    ERR_ROLLUP_FAILED,
    ERR_SEALED,
    ERR_SOURCE_HEADER,
    ERR_STREAM_NOT_MATCH,
    ERR_TTL_DISABLED,
    respond_ack,
)
from gnats.jetstream.schedulechecks cimport NONE_EARLIER, check_schedule
from gnats.jetstream.storing cimport acknowledge, after_take, store_checked
from gnats.jetstream.streamcore cimport StreamCore
from gnats.jetstream.usage cimport usage_exceeds
from gnats.store.base cimport STORE_NOT_FOUND, STORE_OK, StoreMsg
from gnats.store.durations cimport parse_int64, parse_message_ttl


cdef bint process_inbound_jetstream_msg(void *ctx, const Message *msg, const Subscription *sub) noexcept nogil:
    cdef Local *local = local_of(msg.ps)
    cdef Inbound m
    cdef Slice pattern
    m.subject = msg.subject
    m.reply = msg.reply
    m.hdr = msg.data
    m.hdr_n = msg.hdr
    m.msg = msg.data + msg.hdr
    m.n = msg.n - msg.hdr
    m.owned = m.counted = m.batch.p = NULL
    m.seq = 0
    m.ts = 0
    m.h.found = 0
    m.unheard = False
    m.told_as = TOLD
    # Through imported services, the subject that tells of a fast batch is the requester's.
    pattern = msg.hop.reply if msg.hop != NULL and msg.hop.reply.n else m.reply
    if m.hdr_n:
        parse_headers(m.hdr, m.hdr_n, &m.h)
        if unlikely(has_header(&m.h, H_REQUEST_INFO) or has_status(&m) or msg.trace != NULL):
            if not rewrite_header(&m, msg.trace != NULL):
                return True
        if unlikely(msg.trace != NULL):
            begin_trace(<StreamCore> ctx, local, msg.trace)
    if unlikely(is_fast_batch(&pattern)) and not only_traced(local):
        process_fast_batch_msg(<StreamCore> ctx, local, &m, &pattern)
    else:
        process_jetstream_msg(<StreamCore> ctx, local, &m, False)
    local.mt = NULL
    free(m.owned)
    free(m.counted)
    return not m.unheard


cdef inline bint only_traced(const Local *local) noexcept nogil:
    return local.mt != NULL and local.mt.only


cdef void begin_trace(StreamCore s, Local *local, MsgTrace *t) noexcept nogil:
    cdef Slice name
    name.p = <char *> s.name_p
    name.n = s.name_n
    local.mt = t
    trace_jetstream(t, &name)


cdef inline bint has_status(const Inbound *m) noexcept nogil:
    return m.hdr_n > 8 and m.hdr[8] != c'\r'


cdef bint rewrite_header(Inbound *m, bint traced) noexcept nogil:
    """Without its status, and what was for others than those who read it in the stream; False when out of memory."""
    cdef Slice dest
    cdef size_t rest
    if not own_header(m):
        return False
    m.hdr_n = remove_status(m.hdr, m.hdr_n)
    if traced and m.hdr_n:
        dest = find_header(m.hdr, m.hdr_n, b"Nats-Trace-Dest", 15)
        if dest.p != NULL:
            rest = m.hdr + m.hdr_n - (dest.p + dest.n)
            memmove(dest.p + 14, dest.p + dest.n, rest)
            memcpy(dest.p, b"trace disabled", 14)
            m.hdr_n = m.hdr_n - dest.n + 14
        else:
            m.hdr_n = add_header(m.hdr, m.hdr, m.hdr_n, b"Nats-Trace-Dest", 15, b"trace disabled", 14)
    m.hdr_n = remove_header(m.hdr, m.hdr_n, b"Nats-Request-Info", 17)
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True


# -- checks, in nats-server's order; False: refused, and said so -------------------------------------------------------

cdef bint check_expected(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    """The Nats-Expected-* headers about sequences."""
    cdef const MsgHeaders *h = &m.h
    cdef const Slice *subject = &m.subject
    cdef StoreMsg sm
    cdef uint64_t seq, last = 0
    cdef int rc
    if header_set(h, H_EXPECTED_LAST_SUBJ_SEQ):
        seq = <uint64_t> parse_int64(h.values[H_EXPECTED_LAST_SUBJ_SEQ].p, h.values[H_EXPECTED_LAST_SUBJ_SEQ].n)
        if header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ):
            subject = &h.values[H_EXPECTED_LAST_SUBJ_SEQ_SUBJ]
        rc = s.store.load_last(subject.p, <uint32_t> subject.n, &sm)
        if rc == STORE_OK:
            last = sm.seq
        if (rc != STORE_OK and not (rc == STORE_NOT_FOUND and seq == 0)) or last != seq:
            return refuse_sequence(s, local, m, last, True)
    elif header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ):
        return refuse(s, local, m, ERR_EXPECTED_PER_SUBJECT_INVALID)
    if header_set(h, H_EXPECTED_LAST_SEQ):
        seq = <uint64_t> parse_int64(h.values[H_EXPECTED_LAST_SEQ].p, h.values[H_EXPECTED_LAST_SEQ].n)
        if seq != s.store.last_seq:
            return refuse_sequence(s, local, m, s.store.last_seq, False)
    return True


cdef bint count(StreamCore s, Local *local, Inbound *m) noexcept nogil:
    """Make the message the new value of its counter."""
    cdef CounterError err
    if not header_set(&m.h, H_INCR):
        return refuse(s, local, m, ERR_INCR_MISSING)
    err = apply_increment(s, m)
    if err == COUNTER_BROKEN:
        return refuse(s, local, m, ERR_COUNTER_BROKEN)
    if err == COUNTER_OK and (m.hdr_n > s.max_payload or m.n > s.max_payload - m.hdr_n):
        return refuse(s, local, m, ERR_MESSAGE_EXCEEDS_MAXIMUM)
    return err == COUNTER_OK


cdef bint check_headers(StreamCore s, Local *local, Inbound *m, bint sourced, Checked *c) noexcept nogil:
    cdef const MsgHeaders *h = &m.h
    cdef Decimal unused
    cdef int64_t ttl = 0
    if header_set(h, H_INCR) and not (
            check_increment(s, local, m) if not sourced else read_decimal(
                h.values[H_INCR].p, h.values[H_INCR].n, &unused) or refuse(s, local, m, ERR_INCR_INVALID)):
        return False
    if header_set(h, H_EXPECTED_STREAM) and (
            h.values[H_EXPECTED_STREAM].n != s.name_n
            or memcmp(h.values[H_EXPECTED_STREAM].p, s.name_p, s.name_n) != 0):
        return refuse(s, local, m, ERR_STREAM_NOT_MATCH)
    if header_set(h, H_TTL):
        parse_message_ttl(h.values[H_TTL].p, h.values[H_TTL].n, &ttl)
        if ttl and not sourced and not s.cfg.allow_ttl:
            return refuse(s, local, m, ERR_TTL_DISABLED)
    if not check_expected(s, local, m):
        return False
    if not sourced:
        if not check_schedule(s, local, m, NONE_EARLIER):
            return False
        if header_set(h, H_STREAM_SOURCE):
            return refuse(s, local, m, ERR_SOURCE_HEADER)
    return check_identity(s, local, m, sourced, c)


cdef bint check_identity(StreamCore s, Local *local, const Inbound *m, bint sourced, Checked *c) noexcept nogil:
    """Message ids and rollups."""
    cdef const MsgHeaders *h = &m.h
    cdef uint64_t seq
    if header_set(h, H_MSG_ID):
        c.msg_id = h.values[H_MSG_ID]
        seq = dedupe_find(&s.dedupe, c.msg_id.p, c.msg_id.n) if not s.cfg.mirror else 0
        if seq:
            c.outcome = MSG_DUPLICATE
            if unlikely(local.mt != NULL):
                trace_jetstream_error(local.mt, TRACE_DUPLICATE, NULL, 0)
            respond_ack(s, local, &m.reply, seq, b',"duplicate": true}', 19)
            return False
    if not check_last_msg_id(s, local, m):
        return False
    if header_set(h, H_ROLLUP):
        if not sourced and (not s.cfg.allow_rollup or s.cfg.deny_purge):
            return refuse_with(s, local, m, ERR_ROLLUP_FAILED, b"rollup not permitted", 20)
        c.rollup = rollup_of(&h.values[H_ROLLUP])
        if c.rollup == NO_ROLLUP:
            refuse_rollup(s, local, m)
            return False
    return True


cdef bint check_sizes(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef size_t most = <size_t> s.cfg.max_msg_size
    if s.cfg.max_msg_size >= 0 and (m.hdr_n > most or m.n > most - m.hdr_n):
        return refuse(s, local, m, ERR_MESSAGE_EXCEEDS_MAXIMUM)
    if m.hdr_n > MAX_HEADER:
        return refuse(s, local, m, ERR_HEADER_EXCEEDS_MAXIMUM)
    if s.server_usage is not None and usage_exceeds(s.server_usage, s.cfg.memory, 0):
        return refuse(s, local, m, ERR_INSUFFICIENT_RESOURCES)
    return True


# -- storing -----------------------------------------------------------------------------------------------------------

cdef void process_jetstream_msg(StreamCore s, Local *local, Inbound *m, bint sourced) noexcept nogil:
    cdef Taken t
    cdef bint batched = header_set(&m.h, H_BATCH_ID) and not sourced and not only_traced(local)
    s.enter()
    if unlikely(batched):
        t.c.rollup = NO_ROLLUP
        t.c.unscheduled = False
        t.subject = NULL
        t.purged = process_atomic_batch_msg(s, local, m)
    else:
        take(s, local, m, sourced, &t)
    s.leave(local.ps)
    after_take(s, m, &t)


cdef Outcome take(StreamCore s, Local *local, Inbound *m, bint sourced, Taken *t) noexcept nogil:
    t.c.rollup = NO_ROLLUP
    t.c.unscheduled = t.c.part = False
    t.c.ttl = 0
    t.c.msg_id.n = 0
    t.c.outcome = MSG_REFUSED
    t.purged = False
    if transform_subject(s, local, m, &t.subject) and accept(s, local, m, sourced, &t.c):
        t.purged = store_accepted(s, local, m, &t.c)
    return t.c.outcome


cdef bint accept(StreamCore s, Local *local, Inbound *m, bint sourced, Checked *c) noexcept nogil:
    """Is it to be stored? The lock is held."""
    if not s.cfg.memory and record_size(m) > MAX_RECORD:
        return refuse_store(s, local, m, b"message too large", 17)
    if s.cfg.sealed:
        return refuse(s, local, m, ERR_SEALED)
    if not s.active or s.closed:
        m.unheard = True
        return False
    if m.h.found and not check_headers(s, local, m, sourced, c):
        return False
    if unlikely(s.cfg.allow_counter) and not count(s, local, m):
        return False
    return check_sizes(s, local, m)


cdef bint store_accepted(StreamCore s, Local *local, Inbound *m, Checked *c) noexcept nogil:
    cdef bint purged = store_checked(s, local, m, c)
    if c.outcome == MSG_STORED:
        acknowledge(s, local, m)
    return purged
