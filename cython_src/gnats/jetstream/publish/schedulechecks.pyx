"""Check the headers of schedules; see schedulechecks.pxd."""
from libc.stdint cimport int64_t, uint32_t

from gnats.core.messages.headers cimport named_header
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport is_valid_literal_subject, same_bytes
from gnats.includes.text cimport is_text
from gnats.jetstream.publish.errors cimport (
    ERR_SCHEDULE_PATTERN_INVALID,
    ERR_SCHEDULE_ROLLUP_INVALID,
    ERR_SCHEDULE_SOURCE_INVALID,
    ERR_SCHEDULE_TARGET_INVALID,
    ERR_SCHEDULE_TIME_ZONE_INVALID,
    ERR_SCHEDULE_TTL_INVALID,
    ERR_SCHEDULER_INVALID,
    ERR_SCHEDULES_DISABLED,
    ERR_TTL_DISABLED,
)
from gnats.jetstream.publish.inbound cimport Inbound, own_header
from gnats.jetstream.publish.inflight cimport InFlight, in_flight_of
from gnats.jetstream.publish.refusal cimport Refusal, refuse, refuse_without_memory
from gnats.jetstream.state.entry cimport ROLLUP_SUBJECT
from gnats.jetstream.state.headers cimport (
    H_ROLLUP,
    H_SCHEDULE,
    H_SCHEDULER,
    H_SCHEDULE_NEXT,
    H_SCHEDULE_ROLLUP,
    H_SCHEDULE_SOURCE,
    H_SCHEDULE_TARGET,
    H_SCHEDULE_TIME_ZONE,
    H_SCHEDULE_TTL,
    has_header,
    header_set,
    parse_headers,
    rollup_of,
    with_text_header,
)
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.index.filter cimport filter_match
from gnats.store.times.cron cimport SCHEDULE_BAD_ZONE, SCHEDULE_NONE, Due, ScheduleKind
from gnats.store.times.durations cimport parse_message_ttl


cdef inline bint same(const Slice *a, const Slice *b) noexcept nogil:
    return a.n == b.n and same_bytes(a.p, b.p, a.n)


cdef inline bint is_purge(const Slice *following) noexcept nogil:
    return is_text(following.p, following.n, b"purge")


cdef inline bint takes(StreamCore s, const Slice *subject) noexcept nogil:
    return s.schedule_subjects != NULL and filter_match(s.schedule_subjects, subject.p, subject.n)


cdef bint check_definition(StreamCore s, Inbound *m, Refusal *r) noexcept nogil:
    """Check a message that is a schedule."""
    cdef Slice ttl = value_of(&m.h, H_SCHEDULE_TTL), rollup = value_of(&m.h, H_SCHEDULE_ROLLUP)
    cdef Slice target = value_of(&m.h, H_SCHEDULE_TARGET), source = value_of(&m.h, H_SCHEDULE_SOURCE)
    cdef int64_t seconds
    if not s.cfg.allow_schedules:
        return refuse(r, ERR_SCHEDULES_DISABLED)
    if ttl.n and not parse_message_ttl(ttl.p, ttl.n, &seconds):
        return refuse(r, ERR_SCHEDULE_TTL_INVALID)
    if rollup.n and not is_text(rollup.p, rollup.n, b"sub"):
        return refuse(r, ERR_SCHEDULE_ROLLUP_INVALID)
    if ttl.n and not s.cfg.allow_ttl:
        return refuse(r, ERR_TTL_DISABLED)
    if target.n == 0 or not is_valid_literal_subject(target.p, target.n) or same(&target, &m.subject):
        return refuse(r, ERR_SCHEDULE_TARGET_INVALID)
    if source.n and (
        same(&source, &target) or same(&source, &m.subject) or not is_valid_literal_subject(source.p, source.n)
    ):
        return refuse(r, ERR_SCHEDULE_SOURCE_INVALID)
    if not takes(s, &target):
        return refuse(r, ERR_SCHEDULE_TARGET_INVALID)
    if source.n and not takes(s, &source):
        return refuse(r, ERR_SCHEDULE_SOURCE_INVALID)
    if header_set(&m.h, H_ROLLUP):
        if rollup_of(&m.h.values[H_ROLLUP]) != ROLLUP_SUBJECT:
            return refuse(r, ERR_SCHEDULE_ROLLUP_INVALID)
        return True
    if not own_header(m):
        return refuse_without_memory(r)
    m.hdr_n = with_text_header(m.hdr, m.hdr, m.hdr_n, b"Nats-Rollup", b"sub")
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True


cdef bint is_other(StreamCore s, const InFlight *f, const Slice *subject) noexcept nogil:
    """Return whether the subject has a message, and its last one is not a schedule."""
    cdef const Inbound *last
    cdef StoreMsg sm
    cdef Slice pattern
    in_flight_of(f, subject.p, subject.n, &last)
    if last != NULL:
        return not header_set(&last.h, H_SCHEDULE)
    if s.store.load_last(subject.p, <uint32_t> subject.n, &sm) != STORE_OK:
        return False
    pattern = named_header(<char *> sm.hdr, sm.hdr_n, b"Nats-Schedule")
    return pattern.n == 0


cdef bint check_end(StreamCore s, const Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    """Check a message that ends the schedule of another subject, the only use of these headers for publishers."""
    cdef Slice following = value_of(&m.h, H_SCHEDULE_NEXT), scheduler = value_of(&m.h, H_SCHEDULER)
    if following.n == 0:
        return scheduler.n == 0 or refuse(r, ERR_SCHEDULER_INVALID)
    if (
        not is_purge(&following) or scheduler.n == 0 or same(&scheduler, &m.subject)
        or not is_valid_literal_subject(scheduler.p, scheduler.n)
    ):
        return refuse(r, ERR_SCHEDULER_INVALID)
    if not s.cfg.allow_schedules:
        return refuse(r, ERR_SCHEDULES_DISABLED)
    if is_other(s, f, &scheduler):
        return refuse(r, ERR_SCHEDULER_INVALID)
    return True


cdef bint check_schedule(StreamCore s, Inbound *m, const InFlight *f, Refusal *r) noexcept nogil:
    cdef ScheduleKind kind
    cdef int64_t now
    cdef Due due
    if has_header(&m.h, H_SCHEDULE) or has_header(&m.h, H_SCHEDULE_TIME_ZONE):
        now = realtime_ns()
        kind = kind_of(&m.h, now, now, &due)
        if kind < SCHEDULE_NONE:
            if not s.cfg.allow_schedules:
                return refuse(r, ERR_SCHEDULES_DISABLED)
            return refuse(
                r, ERR_SCHEDULE_TIME_ZONE_INVALID if kind == SCHEDULE_BAD_ZONE else ERR_SCHEDULE_PATTERN_INVALID)
        if kind > SCHEDULE_NONE and not check_definition(s, m, r):
            return False
    return check_end(s, m, f, r)
