"""Scheduled messages; see scheduler.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport unlikely
from gnats.includes.times cimport time_after
from gnats.jetstream.engine.barrier cimport js_poller_of, stream_failed
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.publish.inbound cimport Inbound, inbound_free, inbound_init
from gnats.jetstream.publish.inflight cimport log_in_flight
from gnats.jetstream.publish.schedulechecks cimport kind_of, value_of
from gnats.jetstream.state.entry cimport MSG_STORED, Outcome
from gnats.jetstream.state.headers cimport (
    H_SCHEDULER,
    H_SCHEDULE_ROLLUP,
    H_SCHEDULE_SOURCE,
    H_SCHEDULE_TARGET,
    H_SCHEDULE_TTL,
    MsgHeaders,
    header_set,
    parse_headers,
    with_header,
    with_text_header,
    without_header,
    without_headers_like,
)
from gnats.jetstream.state.streamcore cimport StreamCore, arm_schedules
from gnats.jetstream.stream.ingest cimport store_inbound
from gnats.store.base cimport STORE_OK, STORE_UNREADABLE, StoreMsg
from gnats.store.index.schedules cimport (
    Schedule,
    schedule_again,
    schedule_drop,
    schedule_due,
    schedule_find,
)
from gnats.store.scheduling cimport take_schedule
from gnats.store.times.calendar cimport TIME_ROOM, put_time_at
from gnats.store.times.cron cimport SCHEDULE_NONE, SCHEDULE_ONCE, SCHEDULE_REPEATS, Due, ScheduleKind
from gnats.store.times.durations cimport parse_message_ttl

cdef enum:
    AT_ONCE = 1024       # schedules carried out in one round of timers
    HEADER_MORE = 256    # bytes that a header may grow by, without the texts copied into it

cdef int64_t AGAIN = 60000000000         # ns until a message that could not be stored is tried again


cdef bint write_header(Inbound *m, const StoreMsg *content, const Slice *scheduler, const MsgHeaders *h,
                       ScheduleKind kind, const Due *due) noexcept nogil:
    """Write the header of the message to be stored. False when out of memory.

    It has the content's header lines, without those that say how the content itself was to be stored.
    """
    cdef char[TIME_ROOM] when
    cdef Slice ttl = value_of(h, H_SCHEDULE_TTL), rollup = value_of(h, H_SCHEDULE_ROLLUP)
    cdef char *p = <char *> malloc(content.hdr_n + scheduler.n + ttl.n + HEADER_MORE)
    cdef size_t n = content.hdr_n
    if p == NULL:
        return False
    memcpy(p, content.hdr, n)
    n = without_headers_like(p, n, b"Nats-Schedule")
    n = without_headers_like(p, n, b"Nats-Expected-")
    n = without_header(p, n, b"Nats-Msg-Id")
    n = without_header(p, n, b"Nats-TTL")
    n = without_header(p, n, b"Nats-Rollup")
    n = with_header(p, p, n, b"Nats-Scheduler", scheduler.p, scheduler.n)
    if kind == SCHEDULE_ONCE:
        n = with_text_header(p, p, n, b"Nats-Schedule-Next", b"purge")
    else:
        n = with_header(p, p, n, b"Nats-Schedule-Next", when, put_time_at(when, due.ts, due.offset))
    if ttl.n:
        n = with_header(p, p, n, b"Nats-TTL", ttl.p, ttl.n)
    if rollup.n:
        n = with_header(p, p, n, b"Nats-Rollup", rollup.p, 3)
    m.owned = m.hdr = p
    m.hdr_n = n
    parse_headers(p, n, &m.h)
    return True


cdef ScheduleKind produce(
    StreamCore s, const Schedule *sc, int64_t now, Inbound *m, Due *due, bint *again
) noexcept nogil:
    """Make the message that a schedule asks for. Return the schedule's kind.

    SCHEDULE_NONE or less: it is no schedule any more. With again[0] set, it cannot be read now, or memory ran out.
    """
    cdef MsgHeaders h
    cdef StoreMsg found, content
    cdef Slice scheduler, ttl, rollup, source
    cdef ScheduleKind kind
    cdef int64_t seconds
    cdef int rc = s.store.load(sc.seq, &found)
    again[0] = rc == STORE_UNREADABLE
    if rc != STORE_OK or found.hdr_n == 0:
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
    inbound_init(m)
    m.sourced = True
    m.subject = h.values[H_SCHEDULE_TARGET]
    m.msg = content.hdr + content.hdr_n
    m.n = content.msg_n
    again[0] = not write_header(m, &content, &scheduler, &h, kind, due)
    return SCHEDULE_NONE if again[0] else kind


cdef bint run_next(StreamCore s, PollState *ps, int64_t now) noexcept nogil:
    """Carry out one schedule; False when none is due."""
    cdef Inbound m
    cdef Outcome outcome
    cdef Due due
    cdef ScheduleKind kind
    cdef Schedule *sc = NULL
    cdef Slice scheduler
    cdef uint64_t seq
    cdef bint again = False
    s.enter()
    if s.active and not s.closed and not stream_failed(s):
        sc = take_schedule(s.store, now)
    if sc == NULL:
        s.leave(ps)
        return False
    kind = produce(s, sc, now, &m, &due, &again)
    if unlikely(again):
        report_shortage(ps)
        schedule_again(&s.store.schedules, sc, time_after(now, AGAIN))
        s.leave(ps)
        return True
    if kind <= SCHEDULE_NONE:
        schedule_drop(&s.store.schedules, sc)
        s.leave(ps)
        return True
    seq = sc.seq
    outcome = store_inbound(s, js_poller_of(ps), &m)
    # Storing the message ended the schedule, or set its next time. Neither happened if the message was not stored, or
    # not kept.
    scheduler = m.h.values[H_SCHEDULER]
    sc = schedule_find(&s.store.schedules, scheduler.p, <uint32_t> scheduler.n)
    if sc != NULL and sc.seq == seq and sc.slot == 0:
        if kind == SCHEDULE_REPEATS:
            schedule_due(&s.store.schedules, sc, due.ts)
        elif outcome != MSG_STORED or log_in_flight(s) != NULL:
            # In flight, it ends the schedule later; it may be lost with the lead of this server.
            schedule_again(&s.store.schedules, sc, time_after(now, AGAIN))
    s.leave(ps)
    inbound_free(&m)
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
            # There may be more: carry them out in the next round.
            (<StreamCore> owner).schedules_at = now
            (<StreamCore> owner).engine.arm(&(<StreamCore> owner).schedule_timer, monotonic_ns())
        else:
            arm_schedules(<StreamCore> owner)
    (<StreamCore> owner).leave(ps)
