"""Fast batches; see fastbatch.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free

from gnats.core.messages.msgtrace cimport TRACE_DUPLICATE, trace_jetstream_error
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport add64, load64, unlikely
from gnats.includes.text cimport is_text
from gnats.jetstream.batch.batching cimport open_batch
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.engine.outbox cimport publish_later
from gnats.jetstream.publish.checks cimport check_admission, check_ahead
from gnats.jetstream.publish.entries cimport make_entry
from gnats.jetstream.publish.errors cimport (
    ERR_BATCH_DISABLED,
    ERR_BATCH_IN_FLIGHT,
    ERR_BATCH_INVALID_ID,
    ERR_BATCH_INVALID_PATTERN,
    ERR_BATCH_UNKNOWN_ID,
    ERR_REQUIRED_API_LEVEL,
)
from gnats.jetstream.publish.inbound cimport Inbound, own_header, transform_subject
from gnats.jetstream.publish.inflight cimport InFlight, flight_begin, log_in_flight
from gnats.jetstream.publish.puback cimport send_batch_ack
from gnats.jetstream.publish.refusal cimport (
    ANSWER,
    ANSWER_ALWAYS,
    ANSWER_IN_FLOW,
    Refusal,
    answer_refused,
    refuse,
    refuse_without_memory,
)
from gnats.jetstream.state.batchtable cimport MAX_BATCH_ID, OpenBatch, batch_find, batch_remove, batch_touch
from gnats.jetstream.state.entry cimport (
    MSG_DUPLICATE,
    MSG_REFUSED,
    MSG_STORED,
    OF_FAST,
    FastPattern,
    Outcome,
    StreamEntry,
)
from gnats.jetstream.state.headers cimport (
    H_EXPECTED_LAST_MSG_ID,
    H_REQUIRED_API_LEVEL,
    header_set,
    level_too_high,
    parse_headers,
    without_header,
)
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.times.durations cimport parse_int64, parse_uint64

cdef enum:
    MOST_AT_ONCE = 500   # messages for each acknowledgement, summed over the open fast batches of a stream
    DEFAULT_FLOW = 10
    FLOW_ROOM = 96       # bytes of the JSON of flow control or a gap

cdef enum Operation:
    OP_START = 0
    OP_APPEND = 1
    OP_COMMIT = 2
    OP_COMMIT_EOB = 3
    OP_PING = 4

cdef struct FastBatch:
    OpenBatch open
    uint64_t lseq        # the last batch sequence received
    uint64_t pseq        # the last batch sequence that is stored, or that will not be stored
    uint64_t fseq        # the batch sequence that the last flow control acknowledged
    uint64_t sseq        # stream sequence of the message stored last; 0: none
    uint32_t pending     # messages proposed to the log, but not stored
    uint16_t ack_messages, max_ack_messages    # messages for each acknowledgement: now, and at most
    uint8_t gap_ok
    uint8_t commit       # committed: no further message belongs to it


# -- the reply subject -------------------------------------------------------------------------------------------------

cdef bint last_token(Slice *rest, Slice *token) noexcept nogil:
    """Cut the last token off `rest`. False when `rest` is a single token."""
    cdef size_t i = rest.n
    while i and rest.p[i - 1] != c'.':
        i -= 1
    if i == 0:
        return False
    token.p = rest.p + i
    token.n = rest.n - i
    rest.n = i - 1
    return True


cdef bint parse_fast_pattern(const Slice *reply, FastPattern *out) noexcept nogil:
    cdef Slice rest = reply[0]
    cdef Slice token
    cdef int64_t op, flow
    rest.n -= 4
    if not last_token(&rest, &token):
        return False
    op = parse_int64(token.p, token.n)
    if op < OP_START or op > OP_PING:
        return False
    out.ping = op == OP_PING
    out.eob = op == OP_COMMIT_EOB
    out.commit = out.eob or op == OP_COMMIT
    if not last_token(&rest, &token) or not parse_uint64(token.p, token.n, &out.seq):
        return False
    if out.seq == 0 or out.seq == <uint64_t> -1:
        return False
    if (op == OP_START and out.seq != 1) or ((op == OP_APPEND or op == OP_COMMIT_EOB) and out.seq == 1):
        return False
    if not last_token(&rest, &token):
        return False
    out.gap_ok = is_text(token.p, token.n, b"ok")
    if not out.gap_ok and not is_text(token.p, token.n, b"fail"):
        return False
    if not last_token(&rest, &token):
        return False
    flow = parse_int64(token.p, token.n)
    out.flow = <uint16_t> (DEFAULT_FLOW if flow <= 0 else min(flow, <int64_t> 65535))
    return last_token(&rest, &out.id)


def fast_pattern(bytes reply not None) -> tuple | None:
    """Parse a reply subject, for tests: (id, sequence, flow, gap_ok, ping, commit, eob); None when it is malformed.

    Raises ValueError for a reply subject that does not end in .$FI.
    """
    cdef Slice subject
    cdef FastPattern p
    subject.p = PyBytes_AS_STRING(reply)
    subject.n = PyBytes_GET_SIZE(reply)
    if not is_fast_batch(&subject):
        raise ValueError("not of a fast batch")
    if not parse_fast_pattern(&subject, &p):
        return None
    return p.id.p[:p.id.n], p.seq, p.flow, bool(p.gap_ok), bool(p.ping), bool(p.commit), bool(p.eob)


# -- sent to the publisher ---------------------------------------------------------------------------------------------

cdef void send_flow(StreamCore s, JsPoller *jp, const Slice *reply, const FastBatch *b, uint64_t seq) noexcept nogil:
    cdef char[FLOW_ROOM] text
    cdef int n = snprintf(
        text, FLOW_ROOM, b'{"type":"ack","seq":%llu,"msgs":%u}', <unsigned long long> seq,
        <unsigned int> b.ack_messages)
    publish_later(jp, s, reply.p, reply.n, NULL, 0, text, n, False)


cdef void send_gap(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t expected, uint64_t seq) noexcept nogil:
    cdef char[FLOW_ROOM] text
    cdef int n = snprintf(
        text, FLOW_ROOM, b'{"type":"gap","last_seq":%llu,"seq":%llu}', <unsigned long long> expected,
        <unsigned long long> seq)
    publish_later(jp, s, reply.p, reply.n, NULL, 0, text, n, True)


cdef bint check_flow(StreamCore s, JsPoller *jp, const Slice *reply, FastBatch *b) noexcept nogil:
    """When an acknowledgement is due, send flow control with a new rate. Return whether it was sent."""
    cdef uint64_t each = b.ack_messages
    cdef uint16_t most
    if b.pseq < b.fseq + each:
        return False
    b.fseq += (b.pseq - b.fseq) // each * each
    most = <uint16_t> max(MOST_AT_ONCE // s.fast_batches.n, <uint64_t> 1)
    most = min(most, b.max_ack_messages)
    if b.ack_messages < most:
        b.ack_messages = min(<uint16_t> (2 * b.ack_messages), most)
    elif b.ack_messages > most:
        b.ack_messages = max(<uint16_t> (b.ack_messages // 2), most)
    send_flow(s, jp, reply, b, b.fseq)
    return True


# -- fast batches ------------------------------------------------------------------------------------------------------

cdef FastBatch *begin_fast_batch(StreamCore s, JsPoller *jp, const FastPattern *p) noexcept nogil:
    cdef FastBatch *b = <FastBatch *> open_batch(
        s, &s.fast_batches, sizeof(FastBatch), p.id.p, p.id.n, load64(&s.batch_limits.fast_per_stream),
        &s.batch_limits.fast_open, load64(&s.batch_limits.fast_total), jp.ps.now)
    if b == NULL:
        return NULL
    b.gap_ok = p.gap_ok
    b.max_ack_messages = p.flow
    b.ack_messages = min(<uint16_t> MOST_AT_ONCE, p.flow) if s.fast_batches.n == 1 else 1
    return b


cdef void drop_fast_batch(StreamCore s, OpenBatch *b) noexcept nogil:
    batch_remove(&s.fast_batches, b)
    add64(&s.batch_limits.fast_open, <uint64_t> -1)
    free(b)


cdef void drop_fast_batches(StreamCore s) noexcept nogil:
    while s.fast_batches.oldest != NULL:
        drop_fast_batch(s, s.fast_batches.oldest)


cdef bint commit_fast_batch(StreamCore s, JsPoller *jp, const Slice *reply, FastBatch *b) noexcept nogil:
    """Commit. When all messages are stored, acknowledge the fast batch, forget it, and return True."""
    b.commit = True
    if b.lseq != b.pseq:
        return False
    send_batch_ack(s, jp, reply, b.sseq, b.open.id, b.open.id_n, b.lseq, False)
    drop_fast_batch(s, &b.open)
    return True


cdef inline void catch_up(FastBatch *b) noexcept nogil:
    """With no message left to be stored, do not wait for sequences that were refused or left out."""
    if b.pending == 0:
        b.pseq = b.lseq


# -- messages ----------------------------------------------------------------------------------------------------------

cdef Outcome process_fast_batch_msg(StreamCore s, JsPoller *jp, Inbound *m, const Slice *pattern) noexcept nogil:
    cdef FastPattern p
    cdef Refusal r
    cdef bint valid = parse_fast_pattern(pattern, &p)
    cdef Outcome outcome = check_admission(s, m, &r)
    if outcome == MSG_STORED:
        if not s.cfg.allow_batched:
            refuse(&r, ERR_BATCH_DISABLED)
        elif not valid:
            refuse(&r, ERR_BATCH_INVALID_PATTERN)
        elif p.id.n > MAX_BATCH_ID:
            refuse(&r, ERR_BATCH_INVALID_ID)
        else:
            return process_fast(s, jp, m, &p)
        outcome = MSG_REFUSED
    if outcome == MSG_REFUSED:
        answer_refused(s, jp, m.trace, &m.reply, &r, ANSWER, 0)
    return outcome


cdef FastBatch *find_batch(StreamCore s, JsPoller *jp, Inbound *m, const FastPattern *p, Refusal *r) noexcept nogil:
    """Find the message's fast batch; begin one for its first message. NULL: refused, with the reason in r."""
    cdef FastBatch *b = <FastBatch *> batch_find(&s.fast_batches, p.id.p, p.id.n)
    if b == NULL and (p.seq != 1 or p.ping):
        refuse(r, ERR_BATCH_UNKNOWN_ID)
        return NULL
    if b == NULL:
        b = begin_fast_batch(s, jp, p)
        if b == NULL:
            refuse(r, ERR_BATCH_IN_FLIGHT)
            return NULL
    if header_set(&m.h, H_REQUIRED_API_LEVEL):
        if level_too_high(m.hdr, m.hdr_n):
            drop_fast_batch(s, &b.open)
            refuse(r, ERR_REQUIRED_API_LEVEL)
            return NULL
        if not own_header(m):
            refuse_without_memory(r)
            return NULL
        m.hdr_n = without_header(m.hdr, m.hdr_n, b"Nats-Required-Api-Level")
        parse_headers(m.hdr, m.hdr_n, &m.h)
    return b


cdef Outcome process_fast(StreamCore s, JsPoller *jp, Inbound *m, const FastPattern *p) noexcept nogil:
    cdef StreamEntry e
    cdef Refusal r
    cdef FastBatch *b = find_batch(s, jp, m, p, &r)
    if b == NULL:
        answer_refused(s, jp, m.trace, &m.reply, &r, ANSWER, 0)
        return MSG_REFUSED
    if not b.commit:
        batch_touch(&s.fast_batches, &b.open, jp.ps.now)
    if p.ping:
        process_ping(s, jp, &m.reply, p, b)
        return MSG_REFUSED
    if b.commit or not follows(s, jp, &m.reply, p, b):
        return MSG_REFUSED
    if p.commit:
        b.commit = True
    elif p.seq == 1 and not s.cfg.no_ack:
        send_flow(s, jp, &m.reply, b, 0)
    if not check_fast(s, jp, m, p, b):
        return MSG_REFUSED
    b.pending += 1
    if not make_entry(s, jp, m, OF_FAST, &e, &r):
        answer_refused(s, jp, m.trace, &m.reply, &r, ANSWER, 0)
        return MSG_REFUSED
    if header_set(&m.h, H_EXPECTED_LAST_MSG_ID):
        e.expected_id = m.h.values[H_EXPECTED_LAST_MSG_ID]
    e.fast = p
    return s.log.propose(s, jp, &e)


cdef void process_ping(
    StreamCore s, JsPoller *jp, const Slice *reply, const FastPattern *p, FastBatch *b
) noexcept nogil:
    """Answer a publisher that asks which messages have arrived; p.seq is the last one it has sent."""
    if p.seq > b.lseq:
        send_gap(s, jp, reply, b.lseq + 1, p.seq + 1)
        if b.gap_ok:
            b.lseq = p.seq
            catch_up(b)
            if check_flow(s, jp, reply, b):
                return
        elif commit_fast_batch(s, jp, reply, b):
            return
    send_flow(s, jp, reply, b, b.fseq)


cdef bint follows(StreamCore s, JsPoller *jp, const Slice *reply, const FastPattern *p, FastBatch *b) noexcept nogil:
    """Return whether this is the next message of the fast batch, or one after an allowed gap.

    False: there is nothing to store. A gap that is not allowed, or an eob, has committed the fast batch.
    """
    cdef uint64_t before = b.lseq
    if p.seq != before + 1:
        send_gap(s, jp, reply, before + 1, p.seq)
    if p.seq <= before or (p.seq > before + 1 and not b.gap_ok):
        commit_fast_batch(s, jp, reply, b)
        return False
    b.lseq = p.seq
    if p.eob:
        b.lseq -= 1
        catch_up(b)
        commit_fast_batch(s, jp, reply, b)
        return False
    return True


cdef bint check_fast(StreamCore s, JsPoller *jp, Inbound *m, const FastPattern *p, FastBatch *b) noexcept nogil:
    """Check the message. False: it is answered and not to be stored, and the fast batch may be gone."""
    cdef bint only = not p.gap_ok and b.lseq == 1
    cdef InFlight before
    cdef Outcome outcome
    cdef Refusal r
    if not transform_subject(s, jp, m):
        return False
    flight_begin(&before, log_in_flight(s))
    outcome = check_ahead(s, m, &before, &r)
    if outcome == MSG_STORED:
        return True
    if outcome == MSG_DUPLICATE:
        if unlikely(m.trace != NULL):
            trace_jetstream_error(m.trace, TRACE_DUPLICATE, NULL, 0)
        if b.pending == 0:
            b.pseq = p.seq
            check_flow(s, jp, &m.reply, b)
        if not p.commit:
            return False
        if only:
            send_batch_ack(s, jp, &m.reply, r.last, b.open.id, b.open.id_n, p.seq, True)
            drop_fast_batch(s, &b.open)
            return False
    else:
        # The only message of its fast batch gets the reply of a single message.
        answer_refused(s, jp, m.trace, &m.reply, &r, ANSWER_ALWAYS if only else ANSWER_IN_FLOW, p.seq)
        if only:
            drop_fast_batch(s, &b.open)
            return False
        if p.gap_ok and not p.commit:
            return False
        b.lseq -= 1
        catch_up(b)
    commit_fast_batch(s, jp, &m.reply, b)
    return False


cdef void fast_batch_stored(StreamCore s, JsPoller *jp, const StreamEntry *e, uint64_t seq) noexcept nogil:
    cdef FastBatch *b = <FastBatch *> batch_find(&s.fast_batches, e.fast.id.p, e.fast.id.n)
    if b == NULL:
        return
    b.pending -= 1
    b.sseq = seq
    b.pseq = e.fast.seq
    catch_up(b)
    if not b.commit or b.lseq != b.pseq:
        check_flow(s, jp, &e.reply, b)
        return
    if b.pending == 0 or not s.cfg.no_ack:
        send_batch_ack(s, jp, &e.reply, b.sseq, b.open.id, b.open.id_n, b.lseq, False)
    drop_fast_batch(s, &b.open)
