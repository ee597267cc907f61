"""Check whether a message may be stored; see checks.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport likely, unlikely
from gnats.jetstream.engine.usage cimport usage_exceeds
from gnats.jetstream.publish.counter cimport COUNTER_BROKEN, COUNTER_OK, CounterError, add_increment, check_increment
from gnats.jetstream.publish.errors cimport (
    ERR_COUNTER_BROKEN,
    ERR_EXPECTED_PER_SUBJECT_INVALID,
    ERR_HEADER_EXCEEDS_MAXIMUM,
    ERR_INCR_MISSING,
    ERR_INSUFFICIENT_RESOURCES,
    ERR_MESSAGE_EXCEEDS_MAXIMUM,
    ERR_ROLLUP_FAILED,
    ERR_SEALED,
    ERR_SOURCE_HEADER,
    ERR_STREAM_NOT_MATCH,
    ERR_TTL_DISABLED,
    ERR_TTL_INVALID,
    ERR_WRONG_LAST_MSG_ID,
    ERR_WRONG_LAST_SEQUENCE_CONSTANT,
)
from gnats.jetstream.publish.inbound cimport MAX_HEADER, Inbound, stored_size
from gnats.jetstream.publish.inflight cimport InFlight, has_id_in_flight, in_flight_of, log_in_flight, number_in_flight
from gnats.jetstream.publish.refusal cimport (
    TEXT_ROLLUP,
    Refusal,
    refuse,
    refuse_last,
    refuse_limit,
    refuse_silently,
    refuse_store,
    refuse_text,
    refuse_with,
    refuse_without_memory,
)
from gnats.jetstream.publish.schedulechecks cimport check_schedule
from gnats.jetstream.state.dedupe cimport dedupe_find
from gnats.jetstream.state.entry cimport (
    MSG_DUPLICATE,
    MSG_REFUSED,
    MSG_STORED,
    MSG_UNHEARD,
    NO_ROLLUP,
    ROLLUP_ALL,
    ROLLUP_SUBJECT,
    Outcome,
    Rollup,
)
from gnats.jetstream.state.headers cimport (
    H_EXPECTED_LAST_MSG_ID,
    H_EXPECTED_LAST_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ_SUBJ,
    H_EXPECTED_STREAM,
    H_INCR,
    H_MSG_ID,
    H_ROLLUP,
    H_STREAM_SOURCE,
    H_TTL,
    MsgHeaders,
    header_set,
    rollup_of,
)
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.base cimport (
    STORE_MAX_BYTES,
    STORE_MAX_MSGS,
    STORE_MAX_MSGS_PER_SUBJECT,
    STORE_NOT_FOUND,
    STORE_OK,
    StoreLimits,
    StoreMsg,
)
from gnats.store.format.record cimport MAX_RECORD, record_size
from gnats.store.times.durations cimport parse_int64, parse_message_ttl


# -- the rules; each returns False when it refuses ---------------------------------------------------------------------

cdef inline bint is_open(StreamCore s) noexcept nogil:
    return s.active and not s.closed


cdef inline bint check_sealed(StreamCore s, Refusal *r) noexcept nogil:
    return not s.cfg.sealed or refuse(r, ERR_SEALED)


cdef inline bint check_record(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil:
    if not s.cfg.memory and record_size(m.subject.n, m.hdr_n, m.n) > MAX_RECORD:
        return refuse_store(r, b"message too large")
    return True


cdef inline bint check_header_size(const Inbound *m, Refusal *r) noexcept nogil:
    return m.hdr_n <= MAX_HEADER or refuse(r, ERR_HEADER_EXCEEDS_MAXIMUM)


cdef inline bint check_size(const Inbound *m, size_t most, Refusal *r) noexcept nogil:
    """Refuse a message whose header and payload together have more than `most` bytes."""
    if m.hdr_n > most or m.n > most - m.hdr_n:
        return refuse(r, ERR_MESSAGE_EXCEEDS_MAXIMUM)
    return True


cdef inline bint check_max_msg_size(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil:
    return s.cfg.max_msg_size < 0 or check_size(m, <size_t> s.cfg.max_msg_size, r)


cdef inline bint check_server_usage(StreamCore s, Refusal *r) noexcept nogil:
    if s.server_usage is not None and usage_exceeds(s.server_usage, s.cfg.memory, 0):
        return refuse(r, ERR_INSUFFICIENT_RESOURCES)
    return True


cdef bint check_stream_name(StreamCore s, const MsgHeaders *h, Refusal *r) noexcept nogil:
    cdef const Slice *name = &h.values[H_EXPECTED_STREAM]
    if header_set(h, H_EXPECTED_STREAM) and (name.n != s.name_n or memcmp(name.p, s.name_p, s.name_n) != 0):
        return refuse(r, ERR_STREAM_NOT_MATCH)
    return True


cdef bint check_ttl(StreamCore s, Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    """Parse Nats-TTL. With f NULL, one that cannot be parsed may pass: make_entry() refuses it."""
    if not header_set(&m.h, H_TTL):
        return True
    m.ttl_invalid = not parse_message_ttl(m.h.values[H_TTL].p, m.h.values[H_TTL].n, &m.ttl)
    if m.sourced:
        return True
    if m.ttl_invalid:
        if f == NULL and (m.ttl == 0 or s.cfg.allow_ttl):
            return True
        return refuse(r, ERR_TTL_INVALID if s.cfg.allow_ttl else ERR_TTL_DISABLED)
    return m.ttl == 0 or s.cfg.allow_ttl or refuse(r, ERR_TTL_DISABLED)


cdef bint check_source(const Inbound *m, Refusal *r) noexcept nogil:
    return m.sourced or not header_set(&m.h, H_STREAM_SOURCE) or refuse(r, ERR_SOURCE_HEADER)


cdef bint check_expected_last(StreamCore s, const MsgHeaders *h, const InFlight *f, Refusal *r) noexcept nogil:
    """Check Nats-Expected-Last-Sequence, which is not allowed with messages in flight."""
    cdef const Slice *value = &h.values[H_EXPECTED_LAST_SEQ]
    cdef uint64_t last = s.store.last_seq + number_in_flight(f)
    if not header_set(h, H_EXPECTED_LAST_SEQ):
        return True
    if <uint64_t> parse_int64(value.p, value.n) != last:
        return refuse_last(r, last, False)
    return number_in_flight(f) == 0 or refuse(r, ERR_WRONG_LAST_SEQUENCE_CONSTANT)


cdef bint check_expected_of_subject(StreamCore s, const Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    """Check Nats-Expected-Last-Subject-Sequence, for the message's subject or the one that another header names."""
    cdef const MsgHeaders *h = &m.h
    cdef const Slice *value = &h.values[H_EXPECTED_LAST_SUBJ_SEQ]
    cdef const Slice *subject = &m.subject
    cdef StoreMsg sm
    cdef uint64_t seq, last = 0
    cdef int rc
    if not header_set(h, H_EXPECTED_LAST_SUBJ_SEQ):
        return not header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ) or refuse(r, ERR_EXPECTED_PER_SUBJECT_INVALID)
    seq = <uint64_t> parse_int64(value.p, value.n)
    if header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ):
        subject = &h.values[H_EXPECTED_LAST_SUBJ_SEQ_SUBJ]
    if in_flight_of(f, subject.p, subject.n, NULL):
        return refuse(r, ERR_WRONG_LAST_SEQUENCE_CONSTANT)
    rc = s.store.load_last(subject.p, <uint32_t> subject.n, &sm)
    if rc == STORE_OK:
        last = sm.seq
    if (rc != STORE_OK and not (rc == STORE_NOT_FOUND and seq == 0)) or last != seq:
        return refuse_last(r, last, True)
    return True


cdef bint check_last_id(StreamCore s, const Slice *id, Refusal *r) noexcept nogil:
    if id.n != s.last_msg_id_n or memcmp(id.p, s.last_msg_id, s.last_msg_id_n) != 0:
        return refuse_with(r, ERR_WRONG_LAST_MSG_ID, s.last_msg_id, s.last_msg_id_n)
    return True


cdef bint is_duplicate(StreamCore s, const Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    """Return whether the message's id is remembered (r.last: its sequence) or in flight (r.last 0). A mirror stores its
    origin's messages whatever their ids."""
    cdef const Slice *id = &m.h.values[H_MSG_ID]
    if not header_set(&m.h, H_MSG_ID) or s.cfg.mirror:
        return False
    refuse_silently(r)
    r.last = dedupe_find(&s.dedupe, id.p, id.n)
    return r.last != 0 or has_id_in_flight(f, id)


cdef bint check_rollup(StreamCore s, const Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    cdef Rollup rollup
    if not header_set(&m.h, H_ROLLUP):
        return True
    if not m.sourced and (not s.cfg.allow_rollup or s.cfg.deny_purge):
        return refuse_text(r, ERR_ROLLUP_FAILED, b"rollup not permitted")
    rollup = rollup_of(&m.h.values[H_ROLLUP])
    if not m.sourced:   # of a copy, the origin has looked
        if rollup == ROLLUP_SUBJECT and in_flight_of(f, m.subject.p, m.subject.n, NULL):
            return refuse_text(r, ERR_ROLLUP_FAILED, b"batch rollup sub invalid")
        if rollup == ROLLUP_ALL and number_in_flight(f):
            return refuse_text(r, ERR_ROLLUP_FAILED, b"batch rollup all invalid")
    if rollup == NO_ROLLUP:
        refuse_with(r, ERR_ROLLUP_FAILED, m.h.values[H_ROLLUP].p, m.h.values[H_ROLLUP].n)
        r.form = TEXT_ROLLUP
        return False
    return True


cdef bint check_counter(StreamCore s, Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    """Make the message the new value of its counter, then check its size."""
    cdef CounterError err
    if not header_set(&m.h, H_INCR):
        return refuse(r, ERR_INCR_MISSING)
    err = add_increment(s, m, f)
    if err == COUNTER_BROKEN or (err != COUNTER_OK and f != NULL):
        return refuse(r, ERR_COUNTER_BROKEN)
    if err != COUNTER_OK:
        return refuse_without_memory(r)
    return check_size(m, s.max_payload, r) and check_max_msg_size(s, m, r)


cdef bint check_limits(StreamCore s, const Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    """With discard new, refuse a message that would exceed a limit of the store once those in flight are stored."""
    # those of the store, which store_msg() applies: an update changes the stream's own settings at another moment
    cdef const StoreLimits *limits = &s.store.limits
    cdef size_t size
    if not limits.discard_new:
        return True
    size = stored_size(s, m.subject.n, m.hdr_n, m.n)
    if limits.max_msgs > 0 and s.store.msgs + f.n + 1 > <uint64_t> limits.max_msgs:
        return refuse_limit(r, STORE_MAX_MSGS)
    if limits.max_bytes > 0 and s.store.bytes + f.bytes + size > <uint64_t> limits.max_bytes:
        return refuse_limit(r, STORE_MAX_BYTES)
    if limits.discard_new_per and limits.max_msgs_per > 0 and not header_set(&m.h, H_ROLLUP) and (
        s.store.subject_msgs(m.subject.p, <uint32_t> m.subject.n) + in_flight_of(f, m.subject.p, m.subject.n, NULL)
        + 1 > <uint64_t> limits.max_msgs_per
    ):
        return refuse_limit(r, STORE_MAX_MSGS_PER_SUBJECT)
    return True


# -- the two orders of the rules ---------------------------------------------------------------------------------------

cdef Outcome check_headers(StreamCore s, Inbound *m, Refusal *r) noexcept nogil:
    cdef const MsgHeaders *h = &m.h
    if (
        (header_set(h, H_INCR) and not check_increment(s, m, r)) or not check_stream_name(s, h, r)
        or not check_ttl(s, m, NULL, r) or not check_expected_of_subject(s, m, NULL, r)
        or not check_expected_last(s, h, NULL, r) or not (m.sourced or check_schedule(s, m, NULL, r))
        or not check_source(m, r)
    ):
        return MSG_REFUSED
    if is_duplicate(s, m, NULL, r):
        return MSG_DUPLICATE
    if header_set(h, H_EXPECTED_LAST_MSG_ID) and not check_last_id(s, &h.values[H_EXPECTED_LAST_MSG_ID], r):
        return MSG_REFUSED
    return MSG_STORED if check_rollup(s, m, NULL, r) else MSG_REFUSED


cdef Outcome check_at_once(StreamCore s, Inbound *m, Refusal *r) noexcept nogil:
    cdef Outcome outcome
    if not check_record(s, m, r) or not check_sealed(s, r):
        return MSG_REFUSED
    if not is_open(s):
        return MSG_UNHEARD
    if m.h.found:
        outcome = check_headers(s, m, r)
        if outcome != MSG_STORED:
            return outcome
    if (
        (unlikely(s.cfg.allow_counter) and not check_counter(s, m, NULL, r)) or not check_max_msg_size(s, m, r)
        or not check_header_size(m, r) or not check_server_usage(s, r)
    ):
        return MSG_REFUSED
    return MSG_STORED


cdef Outcome check_ahead(StreamCore s, Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    cdef const MsgHeaders *h = &m.h
    if (
        not check_record(s, m, r) or not check_header_size(m, r)
        or (header_set(h, H_INCR) and not check_increment(s, m, r)) or not check_stream_name(s, h, r)
        or not check_ttl(s, m, f, r)
    ):
        return MSG_REFUSED
    if is_duplicate(s, m, f, r):
        return MSG_DUPLICATE
    if (
        not check_source(m, r) or (s.cfg.allow_counter and not check_counter(s, m, f, r))
        or not check_expected_last(s, h, f, r) or not check_expected_of_subject(s, m, f, r)
        or not (m.sourced or check_schedule(s, m, f, r)) or not check_rollup(s, m, f, r)
        or not check_limits(s, m, f, r)
    ):
        return MSG_REFUSED
    return MSG_STORED


cdef Outcome check_admission(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil:
    if not is_open(s):
        return MSG_UNHEARD
    if not check_sealed(s, r) or not check_server_usage(s, r):
        return MSG_REFUSED
    if not check_account_usage(s, record_size(m.subject.n, m.hdr_n, m.n), r):
        return MSG_REFUSED
    return MSG_STORED if check_max_msg_size(s, m, r) else MSG_REFUSED


cdef Outcome check_message(StreamCore s, Inbound *m, Refusal *r) noexcept nogil:
    cdef const InFlight *f = log_in_flight(s)
    cdef Outcome outcome
    if likely(f == NULL):
        return check_at_once(s, m, r)
    outcome = check_admission(s, m, r)
    return check_ahead(s, m, f, r) if outcome == MSG_STORED else outcome
