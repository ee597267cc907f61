"""Store an entry of a stream's log; see storing.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.messages.msgtrace cimport trace_jetstream_error, trace_jetstream_subject
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.subjects.subject cimport is_valid_literal_subject
from gnats.core.subjects.transform cimport transform_apply, transform_matches
from gnats.includes.atomics cimport unlikely
from gnats.includes.times cimport time_after, whole_seconds
from gnats.jetstream.batch.fastbatch cimport fast_batch_stored
from gnats.jetstream.engine.barrier cimport Local, batch_time, publish_later
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.engine.usage cimport usage_exceeds
from gnats.jetstream.publish.checks cimport check_last_id
from gnats.jetstream.publish.inbound cimport SUBJECT_ROOM, stored_size
from gnats.jetstream.publish.puback cimport (
    ERR_ACCOUNT_RESOURCES,
    ERR_TTL_INVALID,
    respond_ack,
    respond_counted,
    send_batch_ack,
)
from gnats.jetstream.publish.refusal cimport (
    TOLD,
    Refusal,
    refuse,
    refuse_limit,
    refuse_silently,
    refuse_store,
    refuse_without_memory,
    tell_refused,
)
from gnats.jetstream.state.entry cimport (
    ALONE,
    ENDS_ATOMIC,
    MSG_LIMITED,
    MSG_REFUSED,
    MSG_STORED,
    NO_ROLLUP,
    OF_ATOMIC,
    OF_FAST,
    ROLLUP_SUBJECT,
    Entry,
    Outcome,
)
from gnats.jetstream.state.headers cimport (
    put_time,
    with_header,
    with_number_header,
    without_header,
)
from gnats.jetstream.state.streamcore cimport INTEREST_POLICY, StreamCore, arm_schedules, note_purged
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
from gnats.store.times.durations cimport parse_message_ttl
from gnats.store.writing cimport store_msg

cdef enum:
    TTL_MORE = 64        # bytes that a header may grow by when its TTL is replaced
    REPUBLISH_MORE = 256     # bytes of the lines that republishing adds, without their names and subjects


# The header that is stored.
cdef struct Header:
    const char *p
    size_t n
    char *owned          # to be freed; NULL: p is the entry's header


# The subject to which a stored message is republished.
cdef struct Republish:
    char *to             # `few`, or memory to be freed
    size_t n             # 0: do not republish
    uint64_t before      # the sequence of the subject's previous message, 0 for none
    char few[SUBJECT_ROOM]


cdef Outcome store_entry(StreamCore s, Local *local, const Entry *e) noexcept nogil:
    cdef Refusal why
    cdef Republish again
    cdef Header hdr
    cdef Outcome outcome
    cdef bint no_interest
    if unlikely(e.expected_id.n) and not check_last_id(s, &e.expected_id, &why):
        tell_refused(s, local, e.trace, &e.reply, &why, TOLD, 0)
        return MSG_REFUSED
    no_interest = s.cfg.retention == INTEREST_POLICY and not s.consumer_list.has_interest(
        e.subject.p, <uint32_t> e.subject.n)
    if unlikely(e.trace != NULL):
        trace_jetstream_subject(e.trace, &e.subject, no_interest)
        if e.trace.only:
            return MSG_REFUSED
    hdr.p = e.hdr
    hdr.n = e.hdr_n
    hdr.owned = NULL
    again.to = again.few
    again.n = 0
    if no_interest:
        outcome = store_nothing(s, local, e, &why)
    else:
        if unlikely(s.tr != NULL) and not find_republish(s, local, e, &again):
            return MSG_REFUSED
        outcome = store_message(s, local, e, &hdr, &why)
    if outcome == MSG_STORED:
        roll_up(s, e, not no_interest)
        if again.n:
            republish(s, local, e, &hdr, &again)
        answer(s, local, e)
    else:
        tell_refused(s, local, e.trace, &e.reply, &why, TOLD, 0)
    if unlikely(again.to != again.few):
        free(again.to)
    free(hdr.owned)
    return outcome


cdef inline void answer(StreamCore s, Local *local, const Entry *e) noexcept nogil:
    if e.part == ALONE and e.value.n == 0:
        respond_ack(s, local, &e.reply, s.store.last_seq)
    elif e.part == ALONE:
        respond_counted(s, local, &e.reply, s.store.last_seq, &e.value)
    elif e.part == OF_FAST:
        fast_batch_stored(s, local, e)
    elif e.part == ENDS_ATOMIC and not s.cfg.no_ack:
        send_batch_ack(s, local, &e.reply, s.store.last_seq, e.batch.p, e.batch.n, e.batch_n, False)


cdef void roll_up(StreamCore s, const Entry *e, uint64_t keep) noexcept nogil:
    """Purge the messages that a rollup replaces, and the schedule that the message ends
    (processJetStreamMsgWithRollup). keep: 1 when the message itself was stored, else 0."""
    cdef uint64_t gone = 0
    cdef size_t n = e.subject.n if e.rollup == ROLLUP_SUBJECT else 0
    if not s.cfg.allow_rollup or s.cfg.deny_purge:
        return
    if e.rollup != NO_ROLLUP:
        s.store.purge_ex(e.subject.p, <uint32_t> n, 0, keep, &gone)
        if gone:
            note_purged(s, e.subject.p, n)
    if e.ended.n:
        gone = 0
        s.store.purge_ex(e.ended.p, <uint32_t> e.ended.n, 0, 0, &gone)
        if gone:
            note_purged(s, e.ended.p, e.ended.n)


cdef Outcome store_nothing(StreamCore s, Local *local, const Entry *e, Refusal *why) noexcept nogil:
    """Skip one sequence instead of storing the message, which no consumer wants; remember its id."""
    cdef int rc = s.store.skip_msgs(0, 1)
    if unlikely(rc != STORE_OK):
        return refuse_stored(s, e, rc, why)
    s.set_last_msg_id(e.msg_id.p, e.msg_id.n)
    if e.msg_id.n:
        s.remember_msg_id(e.msg_id.p, e.msg_id.n, s.store.last_seq, realtime_ns())
    return MSG_STORED


cdef bint find_ttl(StreamCore s, const Entry *e, int64_t *ttl, Header *hdr, Refusal *why) noexcept nogil:
    """Find the TTL in seconds. Where the message must live longer than its header says, make another header."""
    if not parse_message_ttl(e.ttl.p, e.ttl.n, ttl):
        return refuse(why, ERR_TTL_INVALID)
    if 0 < ttl[0] < s.cfg.marker_ttl and s.cfg.max_msgs_per != 1:
        # The message must not expire before a subject delete marker that the subject may have already.
        ttl[0] = s.cfg.marker_ttl
        hdr.owned = <char *> malloc(e.hdr_n + TTL_MORE)
        if hdr.owned == NULL:
            return refuse_without_memory(why)
        memcpy(hdr.owned, e.hdr, e.hdr_n)
        hdr.n = without_header(hdr.owned, e.hdr_n, b"Nats-TTL")
        hdr.n = with_number_header(hdr.owned, hdr.owned, hdr.n, b"Nats-TTL", <uint64_t> ttl[0])
        hdr.p = hdr.owned
    return True


cdef Outcome store_message(StreamCore s, Local *local, const Entry *e, Header *hdr, Refusal *why) noexcept nogil:
    cdef int64_t ts = e.ts if e.seq else batch_time(local)
    cdef int64_t ttl = 0
    cdef int rc
    if s.account_usage is not None and usage_exceeds(
            s.account_usage, s.cfg.memory, <int64_t> stored_size(s, e.subject.n, e.hdr_n, e.n)):
        refuse(why, ERR_ACCOUNT_RESOURCES)
        return MSG_REFUSED
    if unlikely(e.ttl.n) and not find_ttl(s, e, &ttl, hdr, why):
        return MSG_REFUSED
    if ts < s.store.last_ts and not e.seq:
        ts = realtime_ns()   # another poller has stored since this batch's time was read
    rc = store_msg(
        s.store, e.subject.p, <uint32_t> e.subject.n, hdr.p, <uint32_t> hdr.n, e.msg, <uint32_t> e.n, e.seq, ts, ttl,
        True, e.names_batch and e.part != OF_ATOMIC and e.part != ENDS_ATOMIC)
    if unlikely(rc != STORE_OK):
        return refuse_stored(s, e, rc, why)
    if e.msg_id.n or s.last_msg_id_n:
        s.set_last_msg_id(e.msg_id.p, e.msg_id.n)
    if e.msg_id.n:
        s.remember_msg_id(e.msg_id.p, e.msg_id.n, s.store.last_seq, ts)
    if s.store.limits.max_age > 0:
        s.arm_expiry(time_after(ts, s.store.limits.max_age))
    if ttl > 0:
        s.arm_expiry(time_after(ts, whole_seconds(ttl)))
        if unlikely(s.store.ttls_from):
            report_shortage(local.ps)
            s.arm_expiry(s.store.next_expiry())
    if s.cfg.allow_schedules:
        if unlikely(s.store.schedules_from):
            report_shortage(local.ps)
        arm_schedules(s)
    s.consumer_list.stored(local, s, s.store.last_seq, e.subject.p, <uint32_t> e.subject.n)
    return MSG_STORED


cdef Outcome refuse_stored(StreamCore s, const Entry *e, int rc, Refusal *why) noexcept nogil:
    if rc == STORE_MAX_MSGS or rc == STORE_MAX_BYTES or rc == STORE_MAX_MSGS_PER_SUBJECT:
        refuse_limit(why, rc)
        return MSG_LIMITED
    if rc == STORE_TOO_LARGE:
        refuse_store(why, b"message too large")
    elif rc == STORE_NO_SEQ:
        refuse_store(why, b"there are no more sequences")
    elif rc == STORE_CLOSED:
        refuse_store(why, b"store is closed")
    else:
        refuse_silently(why)
        if rc != STORE_SEQ_MISMATCH:
            # The write failed. The publisher gets no answer: whether the message is stored is not known.
            rc = -5 if s.store.env.error == 0 else -s.store.env.error
            if unlikely(e.trace != NULL):
                trace_jetstream_error(e.trace, rc, NULL, 0)
            s.fail(rc)
    return MSG_REFUSED


# -- republishing ------------------------------------------------------------------------------------------------------

cdef bint find_republish(StreamCore s, Local *local, const Entry *e, Republish *again) noexcept nogil:
    """Find the subject to republish to, and the subject's last message so far. False when out of memory."""
    cdef StoreMsg sm
    again.before = 0
    if not transform_matches(s.tr, e.subject.p, e.subject.n):
        return True
    again.n = transform_apply(s.tr, e.subject.p, e.subject.n, &local.ps.rng, True, again.few, SUBJECT_ROOM)
    if again.n > SUBJECT_ROOM:
        again.to = <char *> malloc(again.n)
        if again.to == NULL:
            report_shortage(local.ps)
            return False
        again.n = transform_apply(s.tr, e.subject.p, e.subject.n, &local.ps.rng, True, again.to, again.n)
    if not is_valid_literal_subject(again.to, again.n):
        again.n = 0
    elif s.store.load_last(e.subject.p, <uint32_t> e.subject.n, &sm) == STORE_OK:
        again.before = sm.seq
    return True


cdef void republish(
    StreamCore s, Local *local, const Entry *e, const Header *stored, const Republish *again
) noexcept nogil:
    """Publish a copy of a stored message, with its stream, subject, sequence and time in the header."""
    cdef char[40] when
    cdef char *hdr = <char *> malloc(stored.n + s.name_n + e.subject.n + REPUBLISH_MORE)
    cdef size_t at
    if hdr == NULL:
        report_shortage(local.ps)
        return
    at = with_header(hdr, stored.p, stored.n, b"Nats-Stream", s.name_p, s.name_n)
    at = with_header(hdr, hdr, at, b"Nats-Subject", e.subject.p, e.subject.n)
    at = with_number_header(hdr, hdr, at, b"Nats-Sequence", s.store.last_seq)
    at = with_header(hdr, hdr, at, b"Nats-Time-Stamp", when, put_time(when, s.store.last_ts))
    at = with_number_header(hdr, hdr, at, b"Nats-Last-Sequence", again.before)
    if s.cfg.republish_headers_only:
        at = with_number_header(hdr, hdr, at, b"Nats-Msg-Size", e.n)
    publish_later(
        local, s, again.to, again.n, hdr, at, e.msg, 0 if s.cfg.republish_headers_only else e.n, False)
    free(hdr)
