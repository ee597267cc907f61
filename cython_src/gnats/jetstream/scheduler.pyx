"""Scheduled messages; see scheduler.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.headers cimport add_header, find_header, remove_header, remove_headers_like
from gnats.core.parser cimport Slice
from gnats.core.pollstate cimport PollState
from gnats.core.subject cimport is_valid_literal_subject, same_bytes
from gnats.includes.linux cimport monotonic_ns, realtime_ns
from gnats.includes.times cimport time_after, time_before
from gnats.jetstream.engine cimport Local, local_of, stream_failed
from gnats.jetstream.headers cimport (
    H_ROLLUP,
    H_SCHEDULE,
    H_SCHEDULE_NEXT,
    H_SCHEDULE_ROLLUP,
    H_SCHEDULE_SOURCE,
    H_SCHEDULE_TARGET,
    H_SCHEDULE_TIME_ZONE,
    H_SCHEDULE_TTL,
    H_SCHEDULER,
    MsgHeaders,
    has_header,
    header_set,
    parse_headers,
)
from gnats.jetstream.ingest cimport (
    MSG_STORED,
    ROLLUP_SUBJECT,
    TOLD,
    Inbound,
    Taken,
    after_take,
    own_header,
    refuse,
    rollup_of,
    take,
)
from gnats.jetstream.puback cimport (
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
from gnats.jetstream.streamcore cimport StreamCore
from gnats.store.base cimport STORE_OK, StoreMsg
from gnats.store.calendar cimport TIME_ROOM, put_time_at
from gnats.store.cron cimport (
    SCHEDULE_BAD_ZONE,
    SCHEDULE_NONE,
    SCHEDULE_ONCE,
    SCHEDULE_REPEATS,
    Due,
    ScheduleKind,
    next_due,
)
from gnats.store.durations cimport parse_message_ttl
from gnats.store.filter cimport filter_match
from gnats.store.schedules cimport (
    Schedule,
    schedule_again,
    schedule_drop,
    schedule_due,
    schedule_find,
    schedule_take,
    schedules_next,
)

cdef enum:
    AT_ONCE = 1024       # schedules that are carried out before others have their turn
    HEADER_MORE = 256    # what a header may grow by here, but for what is copied into it

cdef int64_t SOON = 10000000             # ns; the timer waits this long at least
cdef int64_t AGAIN = 60000000000         # and this long for another try to store what could not be


cdef inline Slice value_of(const MsgHeaders *h, int which) noexcept nogil:
    """p is NULL for what is not there."""
    cdef Slice none
    none.p = NULL
    none.n = 0
    return h.values[which] if has_header(h, which) else none


cdef inline bint same(const Slice *a, const Slice *b) noexcept nogil:
    return a.n == b.n and same_bytes(a.p, b.p, a.n)


cdef inline bint is_purge(const Slice *following) noexcept nogil:
    return following.n == 5 and memcmp(following.p, b"purge", 5) == 0


cdef ScheduleKind kind_of(const MsgHeaders *h, int64_t ts, int64_t now, Due *due) noexcept nogil:
    cdef Slice pattern = value_of(h, H_SCHEDULE), zone = value_of(h, H_SCHEDULE_TIME_ZONE)
    return next_due(pattern.p, pattern.n, zone.p, zone.n, ts, now, due)


# -- may it be stored? -------------------------------------------------------------------------------------------------

cdef inline bint takes(StreamCore s, const Slice *subject) noexcept nogil:
    return s.schedule_subjects != NULL and filter_match(s.schedule_subjects, subject.p, subject.n)


cdef bint check_definition(StreamCore s, Local *local, Inbound *m) noexcept nogil:
    """Of a message that is a schedule."""
    cdef Slice ttl = value_of(&m.h, H_SCHEDULE_TTL), rollup = value_of(&m.h, H_SCHEDULE_ROLLUP)
    cdef Slice target = value_of(&m.h, H_SCHEDULE_TARGET), source = value_of(&m.h, H_SCHEDULE_SOURCE)
    cdef int64_t seconds
    if not s.cfg.allow_schedules:
        return refuse(s, local, m, ERR_SCHEDULES_DISABLED)
    if ttl.n and not parse_message_ttl(ttl.p, ttl.n, &seconds):
        return refuse(s, local, m, ERR_SCHEDULE_TTL_INVALID)
    if rollup.n and not (rollup.n == 3 and memcmp(rollup.p, b"sub", 3) == 0):
        return refuse(s, local, m, ERR_SCHEDULE_ROLLUP_INVALID)
    if ttl.n and not s.cfg.allow_ttl:
        return refuse(s, local, m, ERR_TTL_DISABLED)
    if target.n == 0 or not is_valid_literal_subject(target.p, target.n) or same(&target, &m.subject):
        return refuse(s, local, m, ERR_SCHEDULE_TARGET_INVALID)
    if source.n and (
        same(&source, &target) or same(&source, &m.subject) or not is_valid_literal_subject(source.p, source.n)
    ):
        return refuse(s, local, m, ERR_SCHEDULE_SOURCE_INVALID)
    if not takes(s, &target):
        return refuse(s, local, m, ERR_SCHEDULE_TARGET_INVALID)
    if source.n and not takes(s, &source):
        return refuse(s, local, m, ERR_SCHEDULE_SOURCE_INVALID)
    if header_set(&m.h, H_ROLLUP):
        if rollup_of(&m.h.values[H_ROLLUP]) != ROLLUP_SUBJECT:
            return refuse(s, local, m, ERR_SCHEDULE_ROLLUP_INVALID)
        return True
    if not own_header(m):
        return False
    m.hdr_n = add_header(m.hdr, m.hdr, m.hdr_n, b"Nats-Rollup", 11, b"sub", 3)
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True


cdef bint is_other(StreamCore s, const Slice *subject) noexcept nogil:
    """Is there a message on the subject, and the last one no schedule?"""
    cdef StoreMsg sm
    cdef Slice pattern
    if s.store.load_last(subject.p, <uint32_t> subject.n, &sm) != STORE_OK:
        return False
    pattern = find_header(<char *> sm.hdr, sm.hdr_n, b"Nats-Schedule", 13)
    return pattern.n == 0


cdef bint check_end(StreamCore s, Local *local, const Inbound *m, Earlier earlier) noexcept nogil:
    """Of a message that ends another subject's schedule, which is all that publishers may say of one."""
    cdef Slice following = value_of(&m.h, H_SCHEDULE_NEXT), scheduler = value_of(&m.h, H_SCHEDULER)
    if following.n == 0:
        return scheduler.n == 0 or refuse(s, local, m, ERR_SCHEDULER_INVALID)
    if (
        not is_purge(&following) or scheduler.n == 0 or same(&scheduler, &m.subject)
        or not is_valid_literal_subject(scheduler.p, scheduler.n)
    ):
        return refuse(s, local, m, ERR_SCHEDULER_INVALID)
    if not s.cfg.allow_schedules:
        return refuse(s, local, m, ERR_SCHEDULES_DISABLED)
    if earlier == OTHER_EARLIER or (earlier == NONE_EARLIER and is_other(s, &scheduler)):
        return refuse(s, local, m, ERR_SCHEDULER_INVALID)
    return True


cdef bint check_schedule(StreamCore s, Local *local, Inbound *m, Earlier earlier) noexcept nogil:
    cdef ScheduleKind kind
    cdef int64_t now
    cdef Due due
    if has_header(&m.h, H_SCHEDULE) or has_header(&m.h, H_SCHEDULE_TIME_ZONE):
        now = realtime_ns()
        kind = kind_of(&m.h, now, now, &due)
        if kind < SCHEDULE_NONE:
            if not s.cfg.allow_schedules:
                return refuse(s, local, m, ERR_SCHEDULES_DISABLED)
            return refuse(
                s, local, m,
                ERR_SCHEDULE_TIME_ZONE_INVALID if kind == SCHEDULE_BAD_ZONE else ERR_SCHEDULE_PATTERN_INVALID)
        if kind > SCHEDULE_NONE and not check_definition(s, local, m):
            return False
    return check_end(s, local, m, earlier)


# -- what is due -------------------------------------------------------------------------------------------------------

cdef void arm_schedules(StreamCore s) noexcept nogil:
    cdef int64_t when = schedules_next(&s.store.schedules), now
    if when == INT64_MAX or (s.schedules_at and s.schedules_at <= when):
        return
    now = realtime_ns()
    s.schedules_at = when
    s.engine.arm(&s.schedule_timer, time_after(monotonic_ns(), max(time_before(when, now), SOON)))


cdef bint write_header(Inbound *m, const StoreMsg *content, const Slice *scheduler, const MsgHeaders *h,
                       ScheduleKind kind, const Due *due) noexcept nogil:
    """What is to be stored, with the content's own headers but for those that are about storing that itself."""
    cdef char[TIME_ROOM] when
    cdef Slice ttl = value_of(h, H_SCHEDULE_TTL), rollup = value_of(h, H_SCHEDULE_ROLLUP)
    cdef char *p = <char *> malloc(content.hdr_n + scheduler.n + ttl.n + HEADER_MORE)
    cdef size_t n = content.hdr_n
    if p == NULL:
        return False
    memcpy(p, content.hdr, n)
    n = remove_headers_like(p, n, b"Nats-Schedule", 13)
    n = remove_headers_like(p, n, b"Nats-Expected-", 14)
    n = remove_header(p, n, b"Nats-Msg-Id", 11)
    n = remove_header(p, n, b"Nats-TTL", 8)
    n = remove_header(p, n, b"Nats-Rollup", 11)
    n = add_header(p, p, n, b"Nats-Scheduler", 14, scheduler.p, scheduler.n)
    if kind == SCHEDULE_ONCE:
        n = add_header(p, p, n, b"Nats-Schedule-Next", 18, b"purge", 5)
    else:
        n = add_header(p, p, n, b"Nats-Schedule-Next", 18, when, put_time_at(when, due.ts, due.offset))
    if ttl.n:
        n = add_header(p, p, n, b"Nats-TTL", 8, ttl.p, ttl.n)
    if rollup.n:
        n = add_header(p, p, n, b"Nats-Rollup", 11, rollup.p, 3)
    m.owned = m.hdr = p
    m.hdr_n = n
    parse_headers(p, n, &m.h)
    return True


cdef ScheduleKind produce(StreamCore s, const Schedule *sc, int64_t now, Inbound *m, Due *due) noexcept nogil:
    """The message that a schedule is about. SCHEDULE_NONE or less: it is no schedule any more."""
    cdef MsgHeaders h
    cdef StoreMsg found, content
    cdef Slice scheduler, ttl, rollup, source
    cdef ScheduleKind kind
    cdef int64_t seconds
    if s.store.load(sc.seq, &found) != STORE_OK or found.hdr_n == 0:
        return SCHEDULE_NONE
    parse_headers(<char *> found.hdr, found.hdr_n, &h)
    kind = kind_of(&h, sc.ts, now, due)
    ttl = value_of(&h, H_SCHEDULE_TTL)
    rollup = value_of(&h, H_SCHEDULE_ROLLUP)
    if (
        kind <= SCHEDULE_NONE or not header_set(&h, H_SCHEDULE_TARGET)
        or (ttl.n and not parse_message_ttl(ttl.p, ttl.n, &seconds)) or (rollup.n and rollup.n != 3)
    ):
        return SCHEDULE_NONE
    content = found
    source = value_of(&h, H_SCHEDULE_SOURCE)
    if source.n and s.store.load_last(source.p, <uint32_t> source.n, &content) != STORE_OK:
        content = found
    scheduler.p = <char *> found.subject
    scheduler.n = found.subject_n
    m.subject = h.values[H_SCHEDULE_TARGET]
    m.reply.p = NULL
    m.reply.n = 0
    m.msg = content.hdr + content.hdr_n
    m.n = content.msg_n
    m.owned = m.counted = m.batch.p = NULL
    m.told_as = TOLD
    m.seq = 0
    m.ts = 0
    return kind if write_header(m, &content, &scheduler, &h, kind, due) else SCHEDULE_NONE


cdef bint run_next(StreamCore s, PollState *ps, int64_t now) noexcept nogil:
    """Carry out one schedule; False when none is due."""
    cdef Inbound m
    cdef Taken t
    cdef Due due
    cdef ScheduleKind kind
    cdef Schedule *sc = NULL
    cdef Slice scheduler
    cdef uint64_t seq
    s.enter()
    if s.active and not s.closed and not stream_failed(s):
        sc = schedule_take(&s.store.schedules, now)
    if sc == NULL:
        s.leave(ps)
        return False
    kind = produce(s, sc, now, &m, &due)
    if kind <= SCHEDULE_NONE:
        schedule_drop(&s.store.schedules, sc)
        s.leave(ps)
        return True
    seq = sc.seq
    take(s, local_of(ps), &m, True, &t)
    # Storing it has ended the schedule, or said when it is due again, unless the message was not stored, or not kept.
    scheduler = m.h.values[H_SCHEDULER]
    sc = schedule_find(&s.store.schedules, scheduler.p, <uint32_t> scheduler.n)
    if sc != NULL and sc.seq == seq and sc.slot == 0:
        if kind == SCHEDULE_REPEATS:
            schedule_due(&s.store.schedules, sc, due.ts)
        elif t.c.outcome != MSG_STORED:
            schedule_again(&s.store.schedules, sc, time_after(now, AGAIN))
    s.leave(ps)
    after_take(s, &m, &t)
    free(m.owned)
    free(m.counted)
    return True


cdef void run_msg_scheduling(void *owner, PollState *ps) noexcept nogil:
    cdef int64_t now = realtime_ns()
    cdef int done = 0
    while done < AT_ONCE and run_next(<StreamCore> owner, ps, now):
        done += 1
    (<StreamCore> owner).enter()
    (<StreamCore> owner).schedules_at = 0
    if (<StreamCore> owner).active and not (<StreamCore> owner).closed and not stream_failed(<StreamCore> owner):
        if done == AT_ONCE:
            # there may be more: in the next round, when others have had their turn
            (<StreamCore> owner).schedules_at = now
            (<StreamCore> owner).engine.arm(&(<StreamCore> owner).schedule_timer, monotonic_ns())
        else:
            arm_schedules(<StreamCore> owner)
    (<StreamCore> owner).leave(ps)
