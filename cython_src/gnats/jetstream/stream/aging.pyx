"""The functions of a stream's timers; see aging.pxd (expireMsgs of filestore.go, purgeMsgIds of stream.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.messages.headers cimport named_header
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns, realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport is_text
from gnats.includes.times cimport time_after, time_before
from gnats.jetstream.engine.barrier cimport js_poller_of, stream_failed
from gnats.jetstream.publish.inbound cimport Inbound, inbound_free, inbound_init
from gnats.jetstream.publish.inflight cimport InFlight, in_flight_of, log_in_flight
from gnats.jetstream.state.dedupe cimport dedupe_expire
from gnats.jetstream.state.headers cimport parse_headers
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.jetstream.stream.ingest cimport process_jetstream_msg
from gnats.jetstream.stream.rollups cimport finish_rollups, next_rollup
from gnats.store.base cimport STORE_OK, StoreMsg

cdef enum:
    AT_ONCE = 1024       # messages removed under one hold of the lock, and in one round when nothing was stored
    MOST_STORED = 1 << 17
    SOME = 64

cdef int64_t MIN_FIRE = 50000000    # ns between two looks for message ids that are too old


cdef void expire_msgs(void *owner, PollState *ps) noexcept nogil:
    cdef int64_t now = realtime_ns(), following
    cdef uint64_t most
    cdef bint markers, more
    (<StreamCore> owner).enter()
    markers = (<StreamCore> owner).cfg.marker_ttl != 0
    most = quota(<StreamCore> owner)
    (<StreamCore> owner).leave(ps)
    more = leave_markers(<StreamCore> owner, ps, now, most) if markers else expire_some(
        <StreamCore> owner, ps, now, most)
    finish_rollups(<StreamCore> owner, ps)
    (<StreamCore> owner).enter()
    (<StreamCore> owner).expires_at = 0
    if not (<StreamCore> owner).closed:
        following = min((<StreamCore> owner).store.next_expiry(), next_rollup(<StreamCore> owner))
        if following != INT64_MAX and not stream_failed(<StreamCore> owner):
            if more and following <= now:
                # in the next round, when others have had their turn
                (<StreamCore> owner).expires_at = following
                (<StreamCore> owner).engine.arm(&(<StreamCore> owner).expiry_timer, monotonic_ns())
            else:
                (<StreamCore> owner).arm_expiry(following)
    (<StreamCore> owner).leave(ps)


cdef uint64_t quota(StreamCore s) noexcept nogil:
    """Return the number of messages that one round may remove. The lock is held.

    That is AT_ONCE, and two for each message that was stored since the last round, so that expiry keeps up with fast
    publishers.
    """
    cdef uint64_t last = s.store.last_seq
    cdef uint64_t more = last - s.aged_seq if last > s.aged_seq else 0
    s.aged_seq = last
    return AT_ONCE + 2 * min(more, <uint64_t> MOST_STORED)


cdef bint expire_some(StreamCore s, PollState *ps, int64_t now, uint64_t most) noexcept nogil:
    """Remove expired messages, in parts. True when there may be more."""
    cdef uint64_t gone = 0
    cdef uint32_t n = AT_ONCE
    while gone < most and n >= AT_ONCE:
        s.enter()
        n = s.store.expire(now, AT_ONCE) if not s.closed else 0
        s.leave(ps)
        gone += n
    return n >= AT_ONCE


cdef bint leave_markers(StreamCore s, PollState *ps, int64_t now, uint64_t most) noexcept nogil:
    """Remove expired messages; the last of a subject leaves a delete marker. True when there may be more."""
    cdef uint64_t[SOME] seqs
    cdef uint64_t gone = 0
    cdef uint32_t i, n = SOME
    while gone < most and n == SOME:
        s.enter()
        n = s.store.expired(now, seqs, SOME) if not s.closed and not stream_failed(s) else 0
        s.leave(ps)
        for i in range(n):
            expire_one(s, ps, seqs[i], now)
        gone += n
    return n == SOME


cdef void expire_one(StreamCore s, PollState *ps, uint64_t seq, int64_t now) noexcept nogil:
    """Have an expired message removed, or replaced by a marker. The store returns it again later, if that fails, and if
    this leaves it for then."""
    cdef StoreMsg sm
    cdef char *subject = NULL
    cdef const InFlight *waiting
    s.enter()
    waiting = log_in_flight(s)
    if s.store.load(seq, &sm) == STORE_OK and not (waiting != NULL and is_early(s, waiting, &sm, now)):
        if s.store.subject_msgs(sm.subject, sm.subject_n) == 1 and not is_marker(&sm) and is_decided_here(s):
            subject = <char *> malloc(sm.subject_n)
            if subject != NULL:
                memcpy(subject, sm.subject, sm.subject_n)
        else:
            s.log.expire(s, js_poller_of(ps), seq)
    s.leave(ps)
    if subject != NULL:
        store_marker(s, ps, subject, sm.subject_n)
        free(subject)


cdef inline bint is_decided_here(StreamCore s) noexcept nogil:
    """Return whether this server says what expires: it alone has the stream, or it leads."""
    return s.log_owner == NULL or log_in_flight(s) != NULL


cdef bint is_early(StreamCore s, const InFlight *waiting, const StoreMsg *sm, int64_t now) noexcept nogil:
    """Return whether what becomes of a message is not known yet: another one of its subject is in flight, or all of
    them have expired, and the others are still there."""
    cdef StoreMsg last
    if in_flight_of(waiting, sm.subject, sm.subject_n, NULL):
        return True
    return s.store.subject_msgs(sm.subject, sm.subject_n) > 1 and (
        s.store.load_last(sm.subject, sm.subject_n, &last) == STORE_OK and last.seq == sm.seq
        and s.store.first_expired(sm.subject, sm.subject_n, now))


cdef bint is_marker(const StoreMsg *sm) noexcept nogil:
    cdef Slice found = named_header(<char *> sm.hdr, sm.hdr_n, b"Nats-Marker-Reason")
    if found.p != NULL and found.n:
        return True
    found = named_header(<char *> sm.hdr, sm.hdr_n, b"KV-Operation")
    return found.p != NULL and is_text(found.p, found.n, b"PURGE")


cdef void store_marker(StreamCore s, PollState *ps, char *subject, size_t n) noexcept nogil:
    """Store a subject delete marker, which replaces the subject's last message after it has expired."""
    cdef char[192] hdr
    cdef char[64] ttl
    cdef Inbound m
    cdef int64_t secs = s.cfg.marker_ttl
    if secs >= 3600:
        snprintf(ttl, sizeof(ttl), b"%lldh%lldm%llds", <long long> (secs // 3600), <long long> (secs // 60 % 60),
                 <long long> (secs % 60))
    elif secs >= 60:
        snprintf(ttl, sizeof(ttl), b"%lldm%llds", <long long> (secs // 60), <long long> (secs % 60))
    else:
        snprintf(ttl, sizeof(ttl), b"%llds", <long long> secs)
    inbound_init(&m)
    m.subject.p = subject
    m.subject.n = n
    m.hdr = hdr
    m.hdr_n = snprintf(
        hdr, sizeof(hdr), b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: %s\r\nNats-Rollup: sub\r\n\r\n",
        <char *> ttl)
    m.msg = hdr
    m.n = 0
    m.sourced = True
    parse_headers(m.hdr, m.hdr_n, &m.h)
    process_jetstream_msg(s, js_poller_of(ps), &m)
    inbound_free(&m)


cdef void purge_msg_ids(void *owner, PollState *ps) noexcept nogil:
    """Forget message ids that are older than the duplicate window."""
    pthread_mutex_lock(&(<StreamCore> owner).store.lock)
    forget_msg_ids(<StreamCore> owner, realtime_ns())
    pthread_mutex_unlock(&(<StreamCore> owner).store.lock)


cdef void forget_msg_ids(StreamCore s, int64_t now) noexcept nogil:
    cdef int64_t oldest = dedupe_expire(&s.dedupe, time_before(now, s.cfg.duplicates))
    cdef int64_t wait
    s.dedupe_timer_set = oldest != 0 and not s.closed
    if s.dedupe_timer_set:
        wait = time_before(time_after(oldest, s.cfg.duplicates), now)
        s.engine.arm(&s.dedupe_timer, time_after(monotonic_ns(), max(wait, MIN_FIRE)))
