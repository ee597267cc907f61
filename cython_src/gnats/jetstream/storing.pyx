"""Store a message that has been checked; see storing.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.clock cimport realtime_ns
from gnats.core.headers cimport add_header, remove_header
from gnats.core.msgtrace cimport trace_jetstream_error, trace_jetstream_subject
from gnats.core.slice cimport Slice
from gnats.core.subject cimport is_valid_literal_subject
from gnats.core.transform cimport transform_apply, transform_matches
from gnats.includes.atomics cimport unlikely
from gnats.includes.times cimport time_after, whole_seconds
from gnats.jetstream.engine cimport Local, batch_time, publish_later
from gnats.jetstream.headers cimport (
    H_BATCH_ID,
    H_MSG_ID,
    H_SCHEDULE_NEXT,
    H_SCHEDULER,
    H_TTL,
    add_number_header,
    has_header,
    header_set,
    parse_headers,
    put_time,
)
from gnats.jetstream.inbound cimport (
    MSG_LIMITED,
    MSG_STORED,
    NO_ROLLUP,
    ROLLUP_SUBJECT,
    SUBJECT_ROOM,
    Checked,
    Inbound,
    own_header,
    record_size,
    refuse,
    refuse_store,
)
from gnats.jetstream.puback cimport ERR_ACCOUNT_RESOURCES, ERR_TTL_INVALID, respond_ack, send_batch_ack
from gnats.jetstream.streamcore cimport INTEREST_POLICY, StreamCore, arm_schedules
from gnats.jetstream.usage cimport usage_exceeds
from gnats.store.base cimport (
    STORE_CLOSED,
    STORE_MAX_BYTES,
    STORE_MAX_MSGS,
    STORE_MAX_MSGS_PER_SUBJECT,
    STORE_NO_SEQ,
    STORE_OK,
    STORE_SEQ_MISMATCH,
    STORE_TOO_LARGE,
    StoreMsg,
)
from gnats.store.durations cimport parse_message_ttl
from gnats.store.writing cimport store_msg


cdef bint store_checked(StreamCore s, Local *local, Inbound *m, Checked *c) noexcept nogil:
    cdef char[SUBJECT_ROOM] few
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
        again_n = transform_apply(s.tr, m.subject.p, m.subject.n, &local.ps.rng, True, few, SUBJECT_ROOM)
        if again_n > SUBJECT_ROOM:
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
