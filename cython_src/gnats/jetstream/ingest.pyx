"""Messages on their way into a stream; see ingest.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove

from gnats.core.headers cimport add_header, find_header, remove_header, remove_status
from gnats.core.message cimport Message
from gnats.core.msgtrace cimport (
    TRACE_DUPLICATE,
    TRACE_LAST_SUBJECT_SEQUENCE,
    MsgTrace,
    trace_jetstream,
    trace_jetstream_error,
    trace_jetstream_subject,
)
from gnats.core.parser cimport Slice
from gnats.core.quoting cimport quote
from gnats.core.subject cimport is_valid_literal_subject
from gnats.core.sublist cimport Subscription
from gnats.core.transform cimport transform_apply, transform_matches
from gnats.includes.atomics cimport unlikely
from gnats.includes.linux cimport realtime_ns
from gnats.includes.times cimport time_after, whole_seconds
from gnats.jetstream.atomicbatch cimport process_atomic_batch_msg
from gnats.jetstream.counter cimport (
    COUNTER_BROKEN,
    COUNTER_OK,
    CounterError,
    Decimal,
    apply_increment,
    read_decimal,
)
from gnats.jetstream.engine cimport Local, batch_time, local_of, publish_later
from gnats.jetstream.dedupe cimport dedupe_find
from gnats.jetstream.fastbatch cimport is_fast_batch, process_fast_batch_msg
from gnats.jetstream.headers cimport (
    H_BATCH_ID,
    H_EXPECTED_LAST_MSG_ID,
    H_EXPECTED_LAST_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ_SUBJ,
    H_EXPECTED_STREAM,
    H_INCR,
    H_MSG_ID,
    H_REQUEST_INFO,
    H_ROLLUP,
    H_SCHEDULE_NEXT,
    H_SCHEDULER,
    H_STREAM_SOURCE,
    H_TTL,
    MsgHeaders,
    add_number_header,
    has_header,
    header_set,
    parse_headers,
    put_time,
    put_uint64,
)
from gnats.jetstream.puback cimport (
    ERR_ACCOUNT_RESOURCES,
    ERR_COUNTER_BROKEN,
    ERR_EXPECTED_PER_SUBJECT_INVALID,
    ERR_HEADER_EXCEEDS_MAXIMUM,
    ERR_INCR_DISABLED,
    ERR_INCR_INVALID,
    ERR_INCR_MISSING,
    ERR_INCR_PAYLOAD,
    ERR_INSUFFICIENT_RESOURCES,
    ERR_MESSAGE_EXCEEDS_MAXIMUM,
    ERR_ROLLUP_FAILED,
    ERR_SEALED,
    ERR_SOURCE_HEADER,
    ERR_STORE_FAILED,
    ERR_STREAM_NOT_MATCH,
    ERR_TTL_DISABLED,
    ERR_TTL_INVALID,
    ERR_WRONG_LAST_MSG_ID,
    ERR_WRONG_LAST_SEQUENCE,
    respond_ack,
    respond_error,
    send_batch_ack,
    send_error,
)
from gnats.jetstream.scheduler cimport NONE_EARLIER, arm_schedules, check_schedule
from gnats.jetstream.streamcore cimport INTEREST_POLICY, StreamCore
from gnats.jetstream.usage cimport usage_exceeds
from gnats.store.durations cimport parse_int64, parse_message_ttl
from gnats.store.writing cimport store_msg
from gnats.store.base cimport (
    STORE_CLOSED,
    STORE_MAX_BYTES,
    STORE_MAX_MSGS,
    STORE_MAX_MSGS_PER_SUBJECT,
    STORE_NOT_FOUND,
    STORE_OK,
    STORE_NO_SEQ,
    STORE_SEQ_MISMATCH,
    STORE_TOO_LARGE,
    StoreMsg,
)

cdef enum:
    ROOM = 256                      # bytes of a subject that need no memory but the stack's
    HEADER_MORE = 128               # what a header may grow by here


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


cdef bint own_header(Inbound *m) noexcept nogil:
    cdef char *copy = <char *> malloc(m.hdr_n + HEADER_MORE)
    if copy == NULL:
        return False
    memcpy(copy, m.hdr, m.hdr_n)
    free(m.owned)
    m.owned = m.hdr = copy
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True


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

cdef bint refuse_with(
    StreamCore s, Local *local, const Inbound *m, int err_code, const char *text, size_t n
) noexcept nogil:
    if unlikely(local.mt != NULL):
        trace_jetstream_error(local.mt, err_code, text, n)
    if m.told_as == TOLD:
        respond_error(s, local, &m.reply, err_code, text, n)
    else:
        send_error(s, local, &m.reply, m.flow_seq if m.told_as == TOLD_IN_FLOW else 0, err_code, text, n)
    return False


cdef bint refuse(StreamCore s, Local *local, const Inbound *m, int err_code) noexcept nogil:
    return refuse_with(s, local, m, err_code, NULL, 0)


cdef bint refuse_sequence(
    StreamCore s, Local *local, const Inbound *m, uint64_t last, bint of_subject
) noexcept nogil:
    cdef char[20] digits
    cdef size_t n = put_uint64(digits, last)
    refuse_with(s, local, m, ERR_WRONG_LAST_SEQUENCE, digits, n)
    if unlikely(local.mt != NULL) and of_subject:
        trace_jetstream_error(local.mt, TRACE_LAST_SUBJECT_SEQUENCE, digits, n)
    return False


cdef bint refuse_store(StreamCore s, Local *local, const Inbound *m, const char *why, size_t n) noexcept nogil:
    return refuse_with(s, local, m, ERR_STORE_FAILED, why, n)


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


cdef bint check_increment(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef const MsgHeaders *h = &m.h
    cdef Decimal d
    if not read_decimal(h.values[H_INCR].p, h.values[H_INCR].n, &d):
        return refuse(s, local, m, ERR_INCR_INVALID)
    if not s.cfg.allow_counter:
        return refuse(s, local, m, ERR_INCR_DISABLED)
    if m.n:
        return refuse(s, local, m, ERR_INCR_PAYLOAD)
    if (
        header_set(h, H_ROLLUP) or header_set(h, H_EXPECTED_STREAM) or header_set(h, H_EXPECTED_LAST_MSG_ID)
        or header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ) or header_set(h, H_EXPECTED_LAST_SEQ)
        or header_set(h, H_EXPECTED_LAST_SUBJ_SEQ)
    ):
        return refuse(s, local, m, ERR_INCR_INVALID)
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


cdef bint check_last_msg_id(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef const Slice *id = &m.h.values[H_EXPECTED_LAST_MSG_ID]
    if header_set(&m.h, H_EXPECTED_LAST_MSG_ID) and (
            id.n != s.last_msg_id_n or memcmp(id.p, s.last_msg_id, s.last_msg_id_n) != 0):
        return refuse_with(s, local, m, ERR_WRONG_LAST_MSG_ID, s.last_msg_id, s.last_msg_id_n)
    return True


cdef Rollup rollup_of(const Slice *v) noexcept nogil:
    cdef char[3] low
    cdef int i
    if v.n != 3:
        return NO_ROLLUP
    for i in range(3):
        low[i] = v.p[i] + 32 if c'A' <= v.p[i] <= c'Z' else v.p[i]
    if memcmp(low, b"sub", 3) == 0:
        return ROLLUP_SUBJECT
    return ROLLUP_ALL if memcmp(low, b"all", 3) == 0 else NO_ROLLUP


cdef void refuse_rollup(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef const Slice *v = &m.h.values[H_ROLLUP]
    cdef char *text = <char *> malloc(5 * v.n + 32)
    cdef char *low
    cdef size_t i, n
    if text == NULL:
        return
    low = text + 4 * v.n + 32
    for i in range(v.n):
        low[i] = v.p[i] + 32 if c'A' <= v.p[i] <= c'Z' else v.p[i]
    memcpy(text, b"rollup value invalid: ", 22)
    n = quote(text + 22, low, v.n) - text
    refuse_with(s, local, m, ERR_ROLLUP_FAILED, text, n)
    free(text)


cdef size_t record_size(const Inbound *m) noexcept nogil:
    """In a file."""
    return 30 + m.subject.n + m.n + (4 + m.hdr_n if m.hdr_n else 0)


cdef bint check_sizes(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef size_t most = <size_t> s.cfg.max_msg_size
    if s.cfg.max_msg_size >= 0 and (m.hdr_n > most or m.n > most - m.hdr_n):
        return refuse(s, local, m, ERR_MESSAGE_EXCEEDS_MAXIMUM)
    if m.hdr_n > MAX_HEADER:
        return refuse(s, local, m, ERR_HEADER_EXCEEDS_MAXIMUM)
    if s.server_usage is not None and usage_exceeds(s.server_usage, s.cfg.memory, 0):
        return refuse(s, local, m, ERR_INSUFFICIENT_RESOURCES)
    return True


cdef bint find_ttl(StreamCore s, Local *local, Inbound *m, Checked *c) noexcept nogil:
    if not header_set(&m.h, H_TTL):
        return True
    if not parse_message_ttl(m.h.values[H_TTL].p, m.h.values[H_TTL].n, &c.ttl):
        return refuse(s, local, m, ERR_TTL_INVALID)
    if 0 < c.ttl < s.cfg.marker_ttl and s.cfg.max_msgs_per != 1:
        # A marker of the subject that is there already must not outlive it.
        c.ttl = s.cfg.marker_ttl
        if not own_header(m):
            return False
        m.hdr_n = remove_header(m.hdr, m.hdr_n, b"Nats-TTL", 8)
        m.hdr_n = add_number_header(m.hdr, m.hdr, m.hdr_n, b"Nats-TTL", 8, <uint64_t> c.ttl)
        parse_headers(m.hdr, m.hdr_n, &m.h)
        c.msg_id = m.h.values[H_MSG_ID] if has_header(&m.h, H_MSG_ID) else c.msg_id
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


cdef void after_take(StreamCore s, const Inbound *m, Taken *t) noexcept nogil:
    if t.purged:
        s.tell_purged(m.subject.p, m.subject.n if t.c.rollup == ROLLUP_SUBJECT else 0)
    if t.c.unscheduled:
        s.tell_purged(m.h.values[H_SCHEDULER].p, m.h.values[H_SCHEDULER].n)
    free(t.subject)


cdef bint transform_subject(StreamCore s, Local *local, Inbound *m, char **memory) noexcept nogil:
    cdef char[ROOM] few
    cdef size_t n
    memory[0] = NULL
    if s.itr == NULL or not transform_matches(s.itr, m.subject.p, m.subject.n):
        return True
    n = transform_apply(s.itr, m.subject.p, m.subject.n, &local.ps.rng, True, few, ROOM)
    memory[0] = <char *> malloc(n + 1)
    if memory[0] == NULL:
        return False
    if n <= ROOM:
        memcpy(memory[0], few, n)
    else:
        n = transform_apply(s.itr, m.subject.p, m.subject.n, &local.ps.rng, True, memory[0], n)
    m.subject.p = memory[0]
    m.subject.n = n
    return True


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


cdef bint store_checked(StreamCore s, Local *local, Inbound *m, Checked *c) noexcept nogil:
    cdef char[ROOM] few
    cdef char *again = few
    cdef size_t again_n = 0
    cdef uint64_t before = 0
    cdef StoreMsg sm
    cdef int rc
    cdef bint purged = False
    cdef bint no_interest = s.cfg.retention == INTEREST_POLICY and not s.observing.has_interest(
        m.subject.p, <uint32_t> m.subject.n)
    if unlikely(local.mt != NULL):
        trace_jetstream_subject(local.mt, &m.subject, no_interest)
        if local.mt.only:
            return False
    if no_interest:
        rc = skip_msg(s, c)
        if unlikely(rc != STORE_OK):
            return refuse_append(s, local, m, rc)
        c.outcome = MSG_STORED
        return roll_up(s, m, c, 0)
    if unlikely(s.tr != NULL) and transform_matches(s.tr, m.subject.p, m.subject.n):
        again_n = transform_apply(s.tr, m.subject.p, m.subject.n, &local.ps.rng, True, few, ROOM)
        if again_n > ROOM:
            again = <char *> malloc(again_n)
            if again == NULL:
                return False
            again_n = transform_apply(s.tr, m.subject.p, m.subject.n, &local.ps.rng, True, again, again_n)
        if not is_valid_literal_subject(again, again_n):
            again_n = 0
        elif s.store.load_last(m.subject.p, <uint32_t> m.subject.n, &sm) == STORE_OK:
            before = sm.seq
    if append(s, local, m, c):
        purged = roll_up(s, m, c, 1)
        if again_n:
            republish(s, local, m, again, again_n, before)
    if again != few:
        free(again)
    return purged


cdef void acknowledge(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef char *more
    if m.batch.p != NULL:
        if not s.cfg.no_ack:
            send_batch_ack(s, local, &m.reply, s.store.last_seq, m.batch.p, m.batch.n, m.batch_n, False)
        return
    if m.reply.n == 0 or m.counted == NULL:
        respond_ack(s, local, &m.reply, s.store.last_seq, b"}", 1)
        return
    more = <char *> malloc(m.val.n + 16)
    if more == NULL:
        return
    memcpy(more, b',"val":"', 8)
    memcpy(more + 8, m.val.p, m.val.n)
    memcpy(more + 8 + m.val.n, b'"}', 2)
    respond_ack(s, local, &m.reply, s.store.last_seq, more, m.val.n + 10)
    free(more)


cdef bint roll_up(StreamCore s, const Inbound *m, Checked *c, uint64_t keep) noexcept nogil:
    """What a message takes the place of goes, and so does a schedule that it ends (processJetStreamMsgWithRollup)."""
    cdef uint64_t gone = 0, ended = 0
    cdef const Slice *scheduler = &m.h.values[H_SCHEDULER]
    if not s.cfg.allow_rollup or s.cfg.deny_purge:
        return False
    if c.rollup != NO_ROLLUP:
        s.store.purge_ex(m.subject.p, <uint32_t> m.subject.n if c.rollup == ROLLUP_SUBJECT else 0, 0, keep, &gone)
    if (
        header_set(&m.h, H_SCHEDULE_NEXT) and header_set(&m.h, H_SCHEDULER) and m.h.values[H_SCHEDULE_NEXT].n == 5
        and memcmp(m.h.values[H_SCHEDULE_NEXT].p, b"purge", 5) == 0
    ):
        s.store.purge_ex(scheduler.p, <uint32_t> scheduler.n, 0, 0, &ended)
        c.unscheduled = ended > 0
    return gone > 0


cdef int skip_msg(StreamCore s, const Checked *c) noexcept nogil:
    """Nobody is interested: the message takes a sequence, and nothing else. STORE_OK or a StoreError."""
    cdef int rc = s.store.skip_msgs(0, 1)
    if unlikely(rc != STORE_OK):
        return rc
    s.set_last_msg_id(c.msg_id.p, c.msg_id.n)
    if c.msg_id.n:
        s.remember_msg_id(c.msg_id.p, c.msg_id.n, s.store.last_seq, realtime_ns())
    return STORE_OK


cdef bint append(StreamCore s, Local *local, Inbound *m, Checked *c) noexcept nogil:
    cdef int64_t ts = m.ts if m.seq else batch_time(local)
    cdef int rc
    if s.account_usage is not None and usage_exceeds(
            s.account_usage, s.cfg.memory,
            <int64_t> (m.subject.n + m.hdr_n + m.n + 16 if s.cfg.memory else record_size(m))):
        return refuse(s, local, m, ERR_ACCOUNT_RESOURCES)
    if not find_ttl(s, local, m, c):
        return False
    if ts < s.store.last_ts and not m.seq:
        ts = realtime_ns()   # another poller's batch was later than ours
    rc = store_msg(
        s.store, m.subject.p, <uint32_t> m.subject.n, m.hdr, <uint32_t> m.hdr_n, m.msg, <uint32_t> m.n, m.seq, ts,
        c.ttl, True, not c.part and header_set(&m.h, H_BATCH_ID))
    if unlikely(rc != STORE_OK):
        if rc == STORE_MAX_MSGS or rc == STORE_MAX_BYTES or rc == STORE_MAX_MSGS_PER_SUBJECT:
            c.outcome = MSG_LIMITED
        return refuse_append(s, local, m, rc)
    c.outcome = MSG_STORED
    if c.msg_id.n or s.last_msg_id_n:
        s.set_last_msg_id(c.msg_id.p, c.msg_id.n)
    if c.msg_id.n:
        s.remember_msg_id(c.msg_id.p, c.msg_id.n, s.store.last_seq, ts)
    if s.store.limits.max_age > 0:
        s.arm_expiry(time_after(ts, s.store.limits.max_age))
    if c.ttl > 0:
        s.arm_expiry(time_after(ts, whole_seconds(c.ttl)))
    if s.cfg.allow_schedules:
        arm_schedules(s)
    s.observing.stored(local, s, s.store.last_seq, m.subject.p, <uint32_t> m.subject.n)
    return True


cdef bint refuse_append(StreamCore s, Local *local, const Inbound *m, int rc) noexcept nogil:
    if rc == STORE_MAX_MSGS:
        return refuse_store(s, local, m, b"maximum messages exceeded", 25)
    if rc == STORE_MAX_BYTES:
        return refuse_store(s, local, m, b"maximum bytes exceeded", 22)
    if rc == STORE_MAX_MSGS_PER_SUBJECT:
        return refuse_store(s, local, m, b"maximum messages per subject exceeded", 37)
    if rc == STORE_TOO_LARGE:
        return refuse_store(s, local, m, b"message too large", 17)
    if rc == STORE_NO_SEQ:
        return refuse_store(s, local, m, b"there are no more sequences", 27)
    if rc == STORE_CLOSED:
        return refuse_store(s, local, m, b"store is closed", 15)
    if rc == STORE_SEQ_MISMATCH:
        return False
    # It cannot be written: nobody is told that it was, nor that it was not.
    rc = -5 if s.store.env.error == 0 else -s.store.env.error
    if unlikely(local.mt != NULL):
        trace_jetstream_error(local.mt, rc, NULL, 0)
    s.fail(rc)
    return False


cdef void republish(
    StreamCore s, Local *local, const Inbound *m, const char *to, size_t n, uint64_t before
) noexcept nogil:
    """Publish a stored message once more, with where it is in its header."""
    cdef char[40] when
    cdef char *hdr = <char *> malloc(m.hdr_n + s.name_n + m.subject.n + 256)
    cdef size_t at
    if hdr == NULL:
        return
    at = add_header(hdr, m.hdr, m.hdr_n, b"Nats-Stream", 11, s.name_p, s.name_n)
    at = add_header(hdr, hdr, at, b"Nats-Subject", 12, m.subject.p, m.subject.n)
    at = add_number_header(hdr, hdr, at, b"Nats-Sequence", 13, s.store.last_seq)
    at = add_header(hdr, hdr, at, b"Nats-Time-Stamp", 15, when, put_time(when, s.store.last_ts))
    at = add_number_header(hdr, hdr, at, b"Nats-Last-Sequence", 18, before)
    if s.cfg.republish_headers_only:
        at = add_number_header(hdr, hdr, at, b"Nats-Msg-Size", 13, m.n)
    publish_later(
        local, s, to, n, hdr, at, m.msg, 0 if s.cfg.republish_headers_only else m.n, False)
    free(hdr)
