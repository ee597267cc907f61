"""Make entries of checked messages; see entries.pxd."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.messages.msgtrace cimport trace_jetstream_subject
from gnats.core.runtime.clock cimport realtime_ns
from gnats.includes.atomics cimport unlikely
from gnats.jetstream.engine.barrier cimport JsPoller, batch_time
from gnats.jetstream.publish.checks cimport check_account_usage
from gnats.jetstream.publish.errors cimport ERR_TTL_INVALID
from gnats.jetstream.publish.inbound cimport Inbound, stored_size
from gnats.jetstream.publish.inflight cimport bytes_in_flight, log_in_flight
from gnats.jetstream.publish.refusal cimport Refusal, refuse, refuse_silently, refuse_without_memory
from gnats.jetstream.state.entry cimport ALONE, NO_ROLLUP, Part, StreamEntry
from gnats.jetstream.state.headers cimport (
    H_BATCH_ID,
    H_MSG_ID,
    H_ROLLUP,
    H_TTL,
    MsgHeaders,
    header_set,
    parse_headers,
    rollup_of,
    schedule_ended,
    with_number_header,
    without_header,
)
from gnats.jetstream.state.streamcore cimport INTEREST_POLICY, StreamCore
from gnats.store.times.durations cimport parse_message_ttl

cdef enum:
    TTL_MORE = 64        # bytes that a header may grow by when its TTL is replaced


cdef bint make_entry(StreamCore s, JsPoller *jp, Inbound *m, Part part, StreamEntry *e, Refusal *r) noexcept nogil:
    e.no_interest = lacks_interest(s, m)
    if unlikely(m.trace != NULL):
        trace_jetstream_subject(m.trace, &m.subject, e.no_interest)
        if m.trace.only:
            return refuse_silently(r)
    if not e.no_interest:
        if part == ALONE and not check_account_usage(
                s, bytes_in_flight(log_in_flight(s)) + stored_size(s, m.subject.n, m.hdr_n, m.n), r):
            return False
        if unlikely(m.ttl_invalid):
            return refuse(r, ERR_TTL_INVALID)
        if falls_short(s, m) and not raise_ttl(s, m):
            return refuse_without_memory(r)
    fill_entry(m, part, e)
    if m.seq == 0:
        e.ts = time_of_entry(s, jp)
    return True


cdef bint entry_of_logged(StreamCore s, Inbound *m, Part part, StreamEntry *e) noexcept nogil:
    if header_set(&m.h, H_TTL):
        parse_message_ttl(m.h.values[H_TTL].p, m.h.values[H_TTL].n, &m.ttl)
    e.no_interest = False   # the leader has looked: here, a consumer may not be known yet
    if falls_short(s, m) and not raise_ttl(s, m):
        return False
    fill_entry(m, part, e)
    return True


cdef inline bint lacks_interest(StreamCore s, const Inbound *m) noexcept nogil:
    return s.cfg.retention == INTEREST_POLICY and s.decides and not s.consumer_list.has_interest(
        m.subject.p, <uint32_t> m.subject.n)


cdef void fill_entry(Inbound *m, Part part, StreamEntry *e) noexcept nogil:
    e.next = NULL
    e.subject = m.subject
    e.published = m.published if m.published.n else m.subject
    e.hdr = m.hdr
    e.hdr_n = m.hdr_n
    e.msg = m.msg
    e.n = m.n
    e.seq = m.seq
    e.ts = m.ts
    e.ttl = m.ttl
    e.msg_id.n = e.expected_id.n = e.ended.n = e.batch.n = 0
    e.rollup = NO_ROLLUP
    e.part = part
    e.sourced = m.sourced
    e.names_batch = e.republish = e.follows = False
    e.reply = m.reply
    e.trace = m.trace
    e.value = m.value
    if m.h.found:
        entry_headers(&m.h, e)


cdef inline int64_t time_of_entry(StreamCore s, JsPoller *jp) noexcept nogil:
    cdef int64_t ts = batch_time(jp)
    # Another poller may have stored since this batch's time was read.
    return ts if ts >= s.store.last_ts else realtime_ns()


cdef inline bint falls_short(StreamCore s, const Inbound *m) noexcept nogil:
    """Return whether a message would expire before the marker of its subject."""
    return 0 < m.ttl < s.cfg.marker_ttl and s.cfg.max_msgs_per != 1


cdef bint raise_ttl(StreamCore s, Inbound *m) noexcept nogil:
    """Let the message live as long as a subject delete marker, which its subject may have already: it must not expire
    before the marker. False when out of memory."""
    cdef char *hdr = <char *> malloc(m.hdr_n + TTL_MORE)
    if hdr == NULL:
        return False
    m.ttl = s.cfg.marker_ttl
    memcpy(hdr, m.hdr, m.hdr_n)
    m.hdr_n = without_header(hdr, m.hdr_n, b"Nats-TTL")
    m.hdr_n = with_number_header(hdr, hdr, m.hdr_n, b"Nats-TTL", <uint64_t> m.ttl)
    free(m.owned)
    m.owned = m.hdr = hdr
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True


cdef void entry_headers(const MsgHeaders *h, StreamEntry *e) noexcept nogil:
    if header_set(h, H_MSG_ID):
        e.msg_id = h.values[H_MSG_ID]
    if header_set(h, H_ROLLUP):
        e.rollup = rollup_of(&h.values[H_ROLLUP])
    e.ended = schedule_ended(h)
    e.names_batch = header_set(h, H_BATCH_ID)
