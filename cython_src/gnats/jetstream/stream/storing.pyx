"""Apply an entry of a stream's log; see storing.pxd."""
from libc.errno cimport EIO
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from gnats.core.subjects.subject cimport is_valid_literal_subject
from gnats.core.subjects.transform cimport transform_apply, transform_matches
from gnats.includes.atomics cimport unlikely
from gnats.includes.times cimport time_after, whole_seconds
from gnats.jetstream.batch.fastbatch cimport fast_batch_stored
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.engine.outbox cimport publish_later
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.publish.checks cimport check_last_id
from gnats.jetstream.publish.inbound cimport SUBJECT_ROOM
from gnats.jetstream.publish.puback cimport respond_ack, respond_counted, send_batch_ack
from gnats.jetstream.publish.refusal cimport (
    ANSWER,
    Refusal,
    answer_refused,
    refuse_broken,
    refuse_limit,
    refuse_silently,
    refuse_store,
)
from gnats.jetstream.state.consumerlist cimport has_consumers
from gnats.jetstream.state.dedupe cimport dedupe_forget
from gnats.jetstream.state.entry cimport (
    ALONE,
    DELETE_MSG,
    ENDS_ATOMIC,
    MSG_LIMITED,
    MSG_REFUSED,
    MSG_STORED,
    NO_ROLLUP,
    OF_ATOMIC,
    OF_FAST,
    Outcome,
    StreamChange,
    StreamEntry,
)
from gnats.jetstream.state.headers cimport put_time, with_header, with_number_header
from gnats.jetstream.state.streamcore cimport StreamCore, arm_schedules
from gnats.jetstream.stream.rollups cimport next_rollup, roll_up
from gnats.store.base cimport (
    STORE_CLOSED,
    STORE_MAX_BYTES,
    STORE_MAX_MSGS,
    STORE_MAX_MSGS_PER_SUBJECT,
    STORE_NO_MEMORY,
    STORE_NO_SEQ,
    STORE_OK,
    STORE_SEQ_MISMATCH,
    STORE_TOO_LARGE,
    StoreMsg,
)
from gnats.store.removing cimport Purge, purge_some
from gnats.store.writing cimport skip_msgs, store_msg

cdef enum:
    REPUBLISH_MORE = 256     # bytes of the lines that republishing adds, without their names and subjects


cdef Outcome store_entries(StreamCore s, JsPoller *jp, StreamEntry *e) noexcept nogil:
    cdef Refusal why
    cdef Outcome outcome
    if unlikely(e.next != NULL):
        return store_batch(s, jp, e)
    outcome = store_entry(s, e, &why)
    if unlikely(outcome != MSG_STORED):
        answer_refused(s, jp, e.trace, &e.reply, &why, ANSWER, 0)
    else:
        finish_entry(s, jp, e, s.store.last_seq)
    return outcome


cdef Outcome store_batch(StreamCore s, JsPoller *jp, StreamEntry *first) noexcept nogil:
    """Store all entries of an atomic batch, and then do what follows from them. If one cannot be stored, none is."""
    cdef Refusal why
    cdef Outcome outcome
    cdef uint64_t before = s.store.last_seq
    cdef uint64_t seq = before
    cdef StreamEntry *e = first
    while e != NULL:
        outcome = store_entry(s, e, &why)
        if outcome != MSG_STORED:
            answer_refused(s, jp, e.trace, &e.reply, &why, ANSWER, 0)
            if s.store.last_seq > before:
                take_back(s, jp, before)
            return outcome
        e = e.next
    e = first
    while e != NULL:
        seq += 1    # a batch has no gaps
        finish_entry(s, jp, e, seq)
        e = e.next
    return MSG_STORED


cdef inline Outcome store_entry(StreamCore s, StreamEntry *e, Refusal *why) noexcept nogil:
    """Store one entry, and note which message its republished copy names as the previous one."""
    if s.tr != NULL and not e.no_interest and not e.follows and transform_matches(s.tr, e.subject.p, e.subject.n):
        e.republish = True
        e.before = last_of_subject(s, e)
    return apply_entry(s, e, why)


cdef inline void finish_entry(StreamCore s, JsPoller *jp, const StreamEntry *e, uint64_t seq) noexcept nogil:
    """Do what follows from the entry stored as `seq`: rollups, timers, consumers, republishing, the answer."""
    if unlikely(e.rollup != NO_ROLLUP or e.ended.n):
        roll_up(s, e, seq)
        if s.rollups_from:
            report_shortage(jp.ps)
            s.arm_expiry(next_rollup(s))
    if not e.no_interest:
        arm_timers(s, jp, e)
        if has_consumers(s.consumer_list):
            s.consumer_list.stored(jp, s, seq, e.subject.p, <uint32_t> e.subject.n)
    if unlikely(e.republish):
        republish(s, jp, e, seq)
    answer(s, jp, e, seq)


# -- the stream changes: the same on each server -----------------------------------------------------------------------

cdef inline Outcome apply_entry(StreamCore s, const StreamEntry *e, Refusal *why) noexcept nogil:
    if unlikely(e.expected_id.n) and not check_last_id(s, &e.expected_id, why):
        return MSG_REFUSED
    return store_nothing(s, e, why) if e.no_interest else store_message(s, e, why)


cdef inline Outcome store_message(StreamCore s, const StreamEntry *e, Refusal *why) noexcept nogil:
    cdef int rc = store_msg(
        s.store, e.subject.p, <uint32_t> e.subject.n, e.hdr, <uint32_t> e.hdr_n, e.msg, <uint32_t> e.n, e.seq, e.ts,
        e.ttl, True, e.names_batch and e.part != OF_ATOMIC and e.part != ENDS_ATOMIC)
    if unlikely(rc != STORE_OK):
        return refuse_stored(s, rc, why)
    if e.msg_id.n or s.last_msg_id_n:
        s.set_last_msg_id(e.msg_id.p, e.msg_id.n)
    if e.msg_id.n:
        s.remember_msg_id(e.msg_id.p, e.msg_id.n, s.store.last_seq, e.ts)
    return MSG_STORED


cdef Outcome store_nothing(StreamCore s, const StreamEntry *e, Refusal *why) noexcept nogil:
    """Skip one sequence instead of storing the message, which no consumer wants; remember its id."""
    cdef int rc = skip_msgs(s.store, 0, 1, e.ts)
    if unlikely(rc != STORE_OK):
        return refuse_stored(s, rc, why)
    s.set_last_msg_id(e.msg_id.p, e.msg_id.n)
    if e.msg_id.n:
        s.remember_msg_id(e.msg_id.p, e.msg_id.n, s.store.last_seq, e.ts)
    return MSG_STORED


cdef void take_back(StreamCore s, JsPoller *jp, uint64_t last) noexcept nogil:
    """Remove the messages behind `last`: the first ones of an atomic batch that cannot be stored as a whole. In a store
    that has failed they stay, until drop_partial_batch() removes them at the next start."""
    cdef uint64_t gone = 0
    cdef int rc = s.store.truncate(last, &gone)
    if rc != STORE_OK:
        if rc == STORE_NO_MEMORY:
            report_shortage(jp.ps)
        s.fail(-error_of(s))
    dedupe_forget(&s.dedupe, s.store.last_seq)
    s.last_msg_id_n = 0


cdef int apply_change(StreamCore s, const StreamChange *c, Purge *part) noexcept nogil:
    if c.op == DELETE_MSG:
        return s.store.remove(c.seq, c.erase)
    return purge_some(s.store, c.subject.p, <uint32_t> c.subject.n, c.seq, c.keep, part)


cdef Outcome refuse_stored(StreamCore s, int rc, Refusal *why) noexcept nogil:
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
            refuse_broken(why, error_of(s))
            s.fail(-error_of(s))
    return MSG_REFUSED


cdef int error_of(StreamCore s) noexcept nogil:
    """The errno with which the store has failed."""
    return EIO if s.store.env.error == 0 else s.store.env.error


# -- what this server does then: timers, consumers, the publisher ------------------------------------------------------

cdef inline void arm_timers(StreamCore s, JsPoller *jp, const StreamEntry *e) noexcept nogil:
    """Have the stored message expire, and its schedule run."""
    if s.store.limits.max_age > 0:
        s.arm_expiry(time_after(e.ts, s.store.limits.max_age))
    if e.ttl > 0:
        s.arm_expiry(time_after(e.ts, whole_seconds(e.ttl)))
        if unlikely(s.store.ttls_from):
            report_shortage(jp.ps)
            s.arm_expiry(s.store.next_expiry())
    if s.cfg.allow_schedules:
        if unlikely(s.store.schedules_from):
            report_shortage(jp.ps)
        arm_schedules(s)


cdef void answer(StreamCore s, JsPoller *jp, const StreamEntry *e, uint64_t seq) noexcept nogil:
    if e.part == ALONE and e.value.n == 0:
        respond_ack(s, jp, &e.reply, seq)
    elif e.part == ALONE:
        respond_counted(s, jp, &e.reply, seq, &e.value)
    elif e.part == OF_FAST:
        fast_batch_stored(s, jp, e, seq)
    elif e.part == ENDS_ATOMIC and not s.cfg.no_ack:
        send_batch_ack(s, jp, &e.reply, seq, e.batch.p, e.batch.n, e.batch_n, False)


cdef uint64_t last_of_subject(StreamCore s, const StreamEntry *e) noexcept nogil:
    """The sequence of the subject's last message, 0 for none."""
    cdef StoreMsg sm
    if s.store.load_last(e.subject.p, <uint32_t> e.subject.n, &sm) != STORE_OK:
        return 0
    return sm.seq


cdef void republish(StreamCore s, JsPoller *jp, const StreamEntry *e, uint64_t seq) noexcept nogil:
    """Publish a copy of the message stored as `seq`."""
    cdef char[SUBJECT_ROOM] few
    cdef char *to = few
    cdef size_t n = transform_apply(s.tr, e.subject.p, e.subject.n, &jp.ps.rng, True, few, SUBJECT_ROOM)
    if n > SUBJECT_ROOM:
        to = <char *> malloc(n)
        if to == NULL:
            report_shortage(jp.ps)
            return
        n = transform_apply(s.tr, e.subject.p, e.subject.n, &jp.ps.rng, True, to, n)
    if is_valid_literal_subject(to, n):
        republish_to(s, jp, e, to, n, seq)
    if to != few:
        free(to)


cdef void republish_to(
    StreamCore s, JsPoller *jp, const StreamEntry *e, const char *to, size_t n, uint64_t seq
) noexcept nogil:
    """Publish to `to`, with the message's stream, subject, sequence and time in the header."""
    cdef char[40] when
    cdef char *hdr = <char *> malloc(e.hdr_n + s.name_n + e.subject.n + REPUBLISH_MORE)
    cdef size_t at
    if hdr == NULL:
        report_shortage(jp.ps)
        return
    at = with_header(hdr, e.hdr, e.hdr_n, b"Nats-Stream", s.name_p, s.name_n)
    at = with_header(hdr, hdr, at, b"Nats-Subject", e.subject.p, e.subject.n)
    at = with_number_header(hdr, hdr, at, b"Nats-Sequence", seq)
    at = with_header(hdr, hdr, at, b"Nats-Time-Stamp", when, put_time(when, e.ts))
    at = with_number_header(hdr, hdr, at, b"Nats-Last-Sequence", e.before)
    if s.cfg.republish_headers_only:
        at = with_number_header(hdr, hdr, at, b"Nats-Msg-Size", e.n)
    publish_later(jp, s, to, n, hdr, at, e.msg, 0 if s.cfg.republish_headers_only else e.n, False)
    free(hdr)
