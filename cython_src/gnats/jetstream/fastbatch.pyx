"""Fast batches; see fastbatch.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp

from gnats.core.headers cimport remove_header
from gnats.core.msgtrace cimport TRACE_DUPLICATE, trace_jetstream_error
from gnats.core.slice cimport Slice
from gnats.includes.atomics cimport add64, load64, unlikely
from gnats.jetstream.batchchecks cimport Before, check_batched, store_batched
from gnats.jetstream.batching cimport may_batch, open_batch
from gnats.jetstream.batchtable cimport MAX_BATCH_ID, OpenBatch, batch_find, batch_remove, batch_touch
from gnats.jetstream.engine cimport Local, publish_later
from gnats.jetstream.headers cimport H_REQUIRED_API_LEVEL, header_set, level_too_high, parse_headers
from gnats.jetstream.inbound cimport (
    MSG_DUPLICATE,
    MSG_STORED,
    NO_ROLLUP,
    TOLD,
    TOLD_ALWAYS,
    TOLD_IN_FLOW,
    Inbound,
    Outcome,
    Taken,
    check_last_msg_id,
    own_header,
    refuse,
    transform_subject,
)
from gnats.jetstream.puback cimport (
    ERR_BATCH_DISABLED,
    ERR_BATCH_IN_FLIGHT,
    ERR_BATCH_INVALID_ID,
    ERR_BATCH_INVALID_PATTERN,
    ERR_BATCH_UNKNOWN_ID,
    ERR_REQUIRED_API_LEVEL,
    send_batch_ack,
)
from gnats.jetstream.storing cimport after_take
from gnats.jetstream.streamcore cimport StreamCore
from gnats.store.durations cimport parse_int64, parse_uint64

cdef enum:
    MOST_AT_ONCE = 500   # messages for each acknowledgement, of all batches of a stream together
    DEFAULT_FLOW = 10
    ROOM = 96            # bytes of a notice

cdef enum Operation:
    OP_START = 0
    OP_APPEND = 1
    OP_COMMIT = 2
    OP_COMMIT_EOB = 3
    OP_PING = 4

cdef struct FastBatch:
    OpenBatch open
    uint64_t lseq        # the highest sequence in the batch
    uint64_t pseq        # the highest that is stored, or need not be
    uint64_t fseq        # the one that flow control was sent for last
    uint64_t sseq        # the sequence in the stream of what was stored last, 0 for nothing
    uint32_t pending     # messages that were checked, but not stored in the end
    uint16_t ack_messages, max_ack_messages
    uint8_t gap_ok
    uint8_t commit       # it takes nothing more


# -- the reply subject -------------------------------------------------------------------------------------------------

cdef bint last_token(Slice *rest, Slice *token) noexcept nogil:
    """Take the last token off; False when nothing would be left of the subject."""
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
    out.gap_ok = token.n == 2 and memcmp(token.p, b"ok", 2) == 0
    if not out.gap_ok and not (token.n == 4 and memcmp(token.p, b"fail", 4) == 0):
        return False
    if not last_token(&rest, &token):
        return False
    flow = parse_int64(token.p, token.n)
    out.flow = <uint16_t> (DEFAULT_FLOW if flow <= 0 else min(flow, <int64_t> 65535))
    return last_token(&rest, &out.id)


def fast_pattern(bytes reply not None) -> tuple | None:
    """(id, sequence, flow, gaps are ok, it is a ping, a commit, one that is no message), None for no pattern.

    Raises ValueError for a reply subject that is of no fast batch at all. For tests.
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


# -- what is sent to its publisher -------------------------------------------------------------------------------------

cdef void send_flow(StreamCore s, Local *local, const Slice *reply, const FastBatch *b, uint64_t seq) noexcept nogil:
    cdef char[ROOM] text
    cdef int n = snprintf(
        text, ROOM, b'{"type":"ack","seq":%llu,"msgs":%u}', <unsigned long long> seq, <unsigned int> b.ack_messages)
    publish_later(local, s, reply.p, reply.n, NULL, 0, text, n, False)


cdef void send_gap(StreamCore s, Local *local, const Slice *reply, uint64_t expected, uint64_t seq) noexcept nogil:
    cdef char[ROOM] text
    cdef int n = snprintf(
        text, ROOM, b'{"type":"gap","last_seq":%llu,"seq":%llu}', <unsigned long long> expected,
        <unsigned long long> seq)
    publish_later(local, s, reply.p, reply.n, NULL, 0, text, n, True)


cdef bint check_flow(StreamCore s, Local *local, const Slice *reply, FastBatch *b) noexcept nogil:
    """Send flow control if it is time, and let the publisher go faster or slower; True when it was sent."""
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
    send_flow(s, local, reply, b, b.fseq)
    return True


# -- batches -----------------------------------------------------------------------------------------------------------

cdef FastBatch *begin_fast_batch(StreamCore s, Local *local, const FastPattern *p) noexcept nogil:
    cdef FastBatch *b = <FastBatch *> open_batch(
        s, &s.fast_batches, sizeof(FastBatch), p.id.p, p.id.n, load64(&s.batch_limits.fast_per_stream),
        &s.batch_limits.fast_open, load64(&s.batch_limits.fast_total), local.ps.now)
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


cdef bint commit_fast_batch(StreamCore s, Local *local, const Slice *reply, FastBatch *b) noexcept nogil:
    """It takes nothing more. True when all of it is stored: it has been acknowledged, and is gone."""
    b.commit = True
    if b.lseq != b.pseq:
        return False
    send_batch_ack(s, local, reply, b.sseq, b.open.id, b.open.id_n, b.lseq, False)
    drop_fast_batch(s, &b.open)
    return True


cdef inline void catch_up(FastBatch *b) noexcept nogil:
    """What was not stored, and will not be, is not waited for."""
    if b.pending == 0:
        b.pseq = b.lseq


# -- messages ----------------------------------------------------------------------------------------------------------

cdef void process_fast_batch_msg(StreamCore s, Local *local, Inbound *m, const Slice *pattern) noexcept nogil:
    cdef FastPattern p
    cdef Taken t
    cdef bint valid = parse_fast_pattern(pattern, &p)
    t.c.rollup = NO_ROLLUP
    t.c.unscheduled = False
    t.subject = NULL
    t.purged = False
    s.enter()
    if may_batch(s, local, m):
        if not s.cfg.allow_batched:
            refuse(s, local, m, ERR_BATCH_DISABLED)
        elif not valid:
            refuse(s, local, m, ERR_BATCH_INVALID_PATTERN)
        elif p.id.n > MAX_BATCH_ID:
            refuse(s, local, m, ERR_BATCH_INVALID_ID)
        else:
            take_fast(s, local, m, &p, &t)
    s.leave(local.ps)
    after_take(s, m, &t)


cdef void take_fast(StreamCore s, Local *local, Inbound *m, const FastPattern *p, Taken *t) noexcept nogil:
    cdef FastBatch *b = <FastBatch *> batch_find(&s.fast_batches, p.id.p, p.id.n)
    if b == NULL:
        if p.seq != 1 or p.ping:
            refuse(s, local, m, ERR_BATCH_UNKNOWN_ID)
            return
        b = begin_fast_batch(s, local, p)
        if b == NULL:
            refuse(s, local, m, ERR_BATCH_IN_FLIGHT)
            return
    if header_set(&m.h, H_REQUIRED_API_LEVEL):
        if level_too_high(m.hdr, m.hdr_n):
            drop_fast_batch(s, &b.open)
            refuse(s, local, m, ERR_REQUIRED_API_LEVEL)
            return
        if not own_header(m):
            return
        m.hdr_n = remove_header(m.hdr, m.hdr_n, b"Nats-Required-Api-Level", 23)
        parse_headers(m.hdr, m.hdr_n, &m.h)
    if not b.commit:
        batch_touch(&s.fast_batches, &b.open, local.ps.now)
    if p.ping:
        process_ping(s, local, &m.reply, p, b)
    elif not b.commit and follows(s, local, &m.reply, p, b):
        if p.commit:
            b.commit = True
        elif p.seq == 1 and not s.cfg.no_ack:
            send_flow(s, local, &m.reply, b, 0)
        if may_store(s, local, m, p, b, t):
            store_fast(s, local, m, p, b, t)


cdef void process_ping(
    StreamCore s, Local *local, const Slice *reply, const FastPattern *p, FastBatch *b
) noexcept nogil:
    """The publisher asks what has come; `seq` is the last that it has sent."""
    if p.seq > b.lseq:
        send_gap(s, local, reply, b.lseq + 1, p.seq + 1)
        if b.gap_ok:
            b.lseq = p.seq
            catch_up(b)
            if check_flow(s, local, reply, b):
                return
        elif commit_fast_batch(s, local, reply, b):
            return
    send_flow(s, local, reply, b, b.fseq)


cdef bint follows(StreamCore s, Local *local, const Slice *reply, const FastPattern *p, FastBatch *b) noexcept nogil:
    """Is it the next message of the batch, or one after a gap that may be? Else there is nothing to store, or the batch
    is at its end."""
    cdef uint64_t before = b.lseq
    if p.seq != before + 1:
        send_gap(s, local, reply, before + 1, p.seq)
    if p.seq <= before or (p.seq > before + 1 and not b.gap_ok):
        commit_fast_batch(s, local, reply, b)
        return False
    b.lseq = p.seq
    if p.eob:
        b.lseq -= 1
        catch_up(b)
        commit_fast_batch(s, local, reply, b)
        return False
    return True


cdef bint may_store(
    StreamCore s, Local *local, Inbound *m, const FastPattern *p, FastBatch *b, Taken *t
) noexcept nogil:
    """If not, the publisher has been told, and the batch may be gone."""
    cdef bint only = not p.gap_ok and b.lseq == 1
    cdef Before before
    cdef Outcome outcome
    cdef uint64_t seq
    if not transform_subject(s, local, m, &t.subject):
        return False
    before.first = before.until = NULL
    before.n = before.bytes = 0
    # a batch that has nothing but this is answered as a message alone
    m.told_as = TOLD_ALWAYS if only else TOLD_IN_FLOW
    m.flow_seq = p.seq
    outcome = check_batched(s, local, m, &before, &seq)
    m.told_as = TOLD
    if outcome == MSG_STORED:
        return True
    if outcome == MSG_DUPLICATE:
        if unlikely(local.mt != NULL):
            trace_jetstream_error(local.mt, TRACE_DUPLICATE, NULL, 0)
        if b.pending == 0:
            b.pseq = p.seq
            check_flow(s, local, &m.reply, b)
        if not p.commit:
            return False
        if only:
            send_batch_ack(s, local, &m.reply, seq, b.open.id, b.open.id_n, p.seq, True)
            drop_fast_batch(s, &b.open)
            return False
    elif only:
        drop_fast_batch(s, &b.open)
        return False
    elif p.gap_ok and not p.commit:
        return False
    else:
        b.lseq -= 1
        catch_up(b)
    commit_fast_batch(s, local, &m.reply, b)
    return False


cdef void store_fast(
    StreamCore s, Local *local, Inbound *m, const FastPattern *p, FastBatch *b, Taken *t
) noexcept nogil:
    b.pending += 1
    if not check_last_msg_id(s, local, m):
        return
    t.purged = store_batched(s, local, m, &t.c, False)
    if t.c.outcome != MSG_STORED:
        return
    b.pending -= 1
    b.sseq = s.store.last_seq
    b.pseq = p.seq
    catch_up(b)
    if not b.commit or b.lseq != b.pseq:
        check_flow(s, local, &m.reply, b)
        return
    if b.pending == 0 or not s.cfg.no_ack:
        send_batch_ack(s, local, &m.reply, b.sseq, b.open.id, b.open.id_n, b.lseq, False)
    drop_fast_batch(s, &b.open)
