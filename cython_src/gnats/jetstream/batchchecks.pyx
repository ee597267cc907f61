"""May a message of a batch be stored? See batchchecks.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from gnats.core.slice cimport Slice
from gnats.core.subject cimport hash_bytes
from gnats.jetstream.counter cimport COUNTER_OK, CounterError, apply_increment, check_increment
from gnats.jetstream.dedupe cimport dedupe_find
from gnats.jetstream.engine cimport Local
from gnats.jetstream.headers cimport (
    H_EXPECTED_LAST_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ_SUBJ,
    H_EXPECTED_STREAM,
    H_INCR,
    H_MSG_ID,
    H_ROLLUP,
    H_SCHEDULE,
    H_SCHEDULER,
    H_STREAM_SOURCE,
    H_TTL,
    MsgHeaders,
    header_set,
)
from gnats.jetstream.inbound cimport (
    MAX_HEADER,
    MAX_RECORD,
    MSG_DUPLICATE,
    MSG_REFUSED,
    MSG_STORED,
    NO_ROLLUP,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    Checked,
    Inbound,
    Outcome,
    Rollup,
    record_size,
    refuse,
    refuse_rollup,
    refuse_sequence,
    refuse_store,
    refuse_with,
    rollup_of,
)
from gnats.jetstream.puback cimport (
    ERR_COUNTER_BROKEN,
    ERR_EXPECTED_PER_SUBJECT_INVALID,
    ERR_HEADER_EXCEEDS_MAXIMUM,
    ERR_INCR_MISSING,
    ERR_MESSAGE_EXCEEDS_MAXIMUM,
    ERR_ROLLUP_FAILED,
    ERR_SOURCE_HEADER,
    ERR_STREAM_NOT_MATCH,
    ERR_TTL_DISABLED,
    ERR_TTL_INVALID,
    ERR_WRONG_LAST_SEQUENCE_CONSTANT,
)
from gnats.jetstream.schedulechecks cimport NONE_EARLIER, OTHER_EARLIER, SCHEDULE_EARLIER, Earlier, check_schedule
from gnats.jetstream.storing cimport store_checked
from gnats.jetstream.streamcore cimport StreamCore
from gnats.store.base cimport STORE_NOT_FOUND, STORE_OK, StoreMsg
from gnats.store.durations cimport parse_int64, parse_message_ttl


cdef size_t stored_size(StreamCore s, const Inbound *m) noexcept nogil:
    return m.subject.n + m.hdr_n + m.n + 16 if s.cfg.memory else record_size(m)


cdef Outcome check_batched(
    StreamCore s, Local *local, Inbound *m, const Before *before, uint64_t *seq
) noexcept nogil:
    cdef const MsgHeaders *h = &m.h
    seq[0] = 0
    if not check_alone(s, local, m):
        return MSG_REFUSED
    if header_set(h, H_MSG_ID):
        seq[0] = dedupe_find(&s.dedupe, h.values[H_MSG_ID].p, h.values[H_MSG_ID].n)
        if seq[0] or has_id_before(m, before):
            return MSG_DUPLICATE
    if header_set(h, H_STREAM_SOURCE):
        refuse(s, local, m, ERR_SOURCE_HEADER)
        return MSG_REFUSED
    if (
        (s.cfg.allow_counter and not may_count(s, local, m)) or not check_expected(s, local, m, before)
        or not check_schedule(s, local, m, scheduler_before(m, before)) or not check_rollup(s, local, m, before)
        or not check_limits(s, local, m, before)
    ):
        return MSG_REFUSED
    return MSG_STORED


cdef bint check_alone(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    """What does not depend on what is stored."""
    cdef const MsgHeaders *h = &m.h
    cdef int64_t ttl
    if not s.cfg.memory and record_size(m) > MAX_RECORD:
        return refuse_store(s, local, m, b"message too large", 17)
    if m.hdr_n > MAX_HEADER:
        return refuse(s, local, m, ERR_HEADER_EXCEEDS_MAXIMUM)
    if header_set(h, H_INCR) and not check_increment(s, local, m):
        return False
    if header_set(h, H_EXPECTED_STREAM) and (
            h.values[H_EXPECTED_STREAM].n != s.name_n
            or memcmp(h.values[H_EXPECTED_STREAM].p, s.name_p, s.name_n) != 0):
        return refuse(s, local, m, ERR_STREAM_NOT_MATCH)
    if header_set(h, H_TTL):
        if not parse_message_ttl(h.values[H_TTL].p, h.values[H_TTL].n, &ttl):
            return refuse(s, local, m, ERR_TTL_INVALID if s.cfg.allow_ttl else ERR_TTL_DISABLED)
        if ttl and not s.cfg.allow_ttl:
            return refuse(s, local, m, ERR_TTL_DISABLED)
    return True


cdef uint64_t earlier_of(const Before *before, const char *subject, size_t n) noexcept nogil:
    """How many messages of a subject come before one in its batch."""
    cdef const Staged *at = before.first
    cdef uint64_t found = 0
    cdef uint32_t hash
    if at == before.until:
        return 0
    hash = hash_bytes(subject, n)
    while at != before.until:
        if at.subject_hash == hash and at.m.subject.n == n and memcmp(at.m.subject.p, subject, n) == 0:
            found += 1
        at = at.next
    return found


cdef Earlier scheduler_before(const Inbound *m, const Before *before) noexcept nogil:
    cdef const Slice *scheduler = &m.h.values[H_SCHEDULER]
    cdef const Staged *at = before.first
    cdef Earlier found = NONE_EARLIER
    if not header_set(&m.h, H_SCHEDULER):
        return NONE_EARLIER
    while at != before.until:
        if at.m.subject.n == scheduler.n and memcmp(at.m.subject.p, scheduler.p, scheduler.n) == 0:
            found = SCHEDULE_EARLIER if header_set(&at.m.h, H_SCHEDULE) else OTHER_EARLIER
        at = at.next
    return found


cdef bint has_id_before(const Inbound *m, const Before *before) noexcept nogil:
    cdef const Slice *id = &m.h.values[H_MSG_ID]
    cdef const Staged *at = before.first
    while at != before.until:
        if at.id_hash == before.until.id_hash and at.m.h.values[H_MSG_ID].n == id.n and (
                memcmp(at.m.h.values[H_MSG_ID].p, id.p, id.n) == 0):
            return True
        at = at.next
    return False


cdef bint may_count(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    """The sums are made when the messages before it are stored; here it is seen whether they can be."""
    cdef Inbound tried = m[0]
    cdef CounterError err
    cdef bint large
    if not header_set(&m.h, H_INCR):
        return refuse(s, local, m, ERR_INCR_MISSING)
    tried.owned = tried.counted = NULL
    err = apply_increment(s, &tried)
    large = tried.hdr_n > s.max_payload or tried.n > s.max_payload - tried.hdr_n
    free(tried.owned)
    free(tried.counted)
    if err != COUNTER_OK:
        return refuse(s, local, m, ERR_COUNTER_BROKEN)
    return not large or refuse(s, local, m, ERR_MESSAGE_EXCEEDS_MAXIMUM)


cdef bint check_expected(StreamCore s, Local *local, const Inbound *m, const Before *before) noexcept nogil:
    cdef const MsgHeaders *h = &m.h
    cdef const Slice *subject = &m.subject
    cdef StoreMsg sm
    cdef uint64_t seq, last = 0
    cdef int rc
    if header_set(h, H_EXPECTED_LAST_SEQ):
        seq = <uint64_t> parse_int64(h.values[H_EXPECTED_LAST_SEQ].p, h.values[H_EXPECTED_LAST_SEQ].n)
        if seq != s.store.last_seq + before.n:
            return refuse_sequence(s, local, m, s.store.last_seq + before.n, False)
        if before.n:
            return refuse(s, local, m, ERR_WRONG_LAST_SEQUENCE_CONSTANT)
    if header_set(h, H_EXPECTED_LAST_SUBJ_SEQ):
        seq = <uint64_t> parse_int64(h.values[H_EXPECTED_LAST_SUBJ_SEQ].p, h.values[H_EXPECTED_LAST_SUBJ_SEQ].n)
        if header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ):
            subject = &h.values[H_EXPECTED_LAST_SUBJ_SEQ_SUBJ]
        if earlier_of(before, subject.p, subject.n):
            return refuse(s, local, m, ERR_WRONG_LAST_SEQUENCE_CONSTANT)
        rc = s.store.load_last(subject.p, <uint32_t> subject.n, &sm)
        if rc == STORE_OK:
            last = sm.seq
        if (rc != STORE_OK and not (rc == STORE_NOT_FOUND and seq == 0)) or last != seq:
            return refuse_sequence(s, local, m, last, True)
    elif header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ):
        return refuse(s, local, m, ERR_EXPECTED_PER_SUBJECT_INVALID)
    return True


cdef bint check_rollup(StreamCore s, Local *local, const Inbound *m, const Before *before) noexcept nogil:
    cdef Rollup rollup
    if not header_set(&m.h, H_ROLLUP):
        return True
    rollup = rollup_of(&m.h.values[H_ROLLUP])
    if not s.cfg.allow_rollup or s.cfg.deny_purge:
        return refuse_with(s, local, m, ERR_ROLLUP_FAILED, b"rollup not permitted", 20)
    if rollup == ROLLUP_SUBJECT and earlier_of(before, m.subject.p, m.subject.n):
        return refuse_with(s, local, m, ERR_ROLLUP_FAILED, b"batch rollup sub invalid", 24)
    if rollup == ROLLUP_ALL and before.n:
        return refuse_with(s, local, m, ERR_ROLLUP_FAILED, b"batch rollup all invalid", 24)
    if rollup == NO_ROLLUP:
        refuse_rollup(s, local, m)
        return False
    return True


cdef bint check_limits(StreamCore s, Local *local, const Inbound *m, const Before *before) noexcept nogil:
    """Discard new: would the store refuse it?"""
    if not s.cfg.discard_new:
        return True
    if s.cfg.max_msgs > 0 and s.store.msgs + before.n + 1 > <uint64_t> s.cfg.max_msgs:
        return refuse_store(s, local, m, b"maximum messages exceeded", 25)
    if s.cfg.max_bytes > 0 and s.store.bytes + before.bytes + stored_size(s, m) > <uint64_t> s.cfg.max_bytes:
        return refuse_store(s, local, m, b"maximum bytes exceeded", 22)
    if s.cfg.discard_new_per and s.cfg.max_msgs_per > 0 and not header_set(&m.h, H_ROLLUP) and (
        s.store.subject_msgs(m.subject.p, <uint32_t> m.subject.n) + earlier_of(before, m.subject.p, m.subject.n)
        + 1 > <uint64_t> s.cfg.max_msgs_per
    ):
        return refuse_store(s, local, m, b"maximum messages per subject exceeded", 37)
    return True


cdef bint store_batched(StreamCore s, Local *local, Inbound *m, Checked *c, bint part) noexcept nogil:
    memset(c, 0, sizeof(Checked))
    c.part = part
    c.outcome = MSG_REFUSED
    if header_set(&m.h, H_INCR) and apply_increment(s, m) != COUNTER_OK:
        return False
    if header_set(&m.h, H_MSG_ID):
        c.msg_id = m.h.values[H_MSG_ID]
    if header_set(&m.h, H_ROLLUP):
        c.rollup = rollup_of(&m.h.values[H_ROLLUP])
    return store_checked(s, local, m, c) or c.unscheduled
