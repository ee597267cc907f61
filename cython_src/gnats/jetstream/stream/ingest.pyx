"""Messages on their way into a stream; see ingest.pxd."""
from libc.stddef cimport size_t
from libc.string cimport memmove, strlen

from gnats.core.messages.headers cimport named_header, remove_status
from gnats.core.messages.message cimport Message
from gnats.core.messages.msgtrace cimport TRACE_DUPLICATE, MsgTrace, trace_jetstream, trace_jetstream_error
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.atomics cimport unlikely
from gnats.includes.text cimport put_text
from gnats.jetstream.batch.atomicbatch cimport process_atomic_batch_msg
from gnats.jetstream.batch.fastbatch cimport is_fast_batch, process_fast_batch_msg
from gnats.jetstream.engine.barrier cimport JsPoller, js_poller_of
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.publish.checks cimport check_message
from gnats.jetstream.publish.entries cimport make_entry
from gnats.jetstream.publish.errors cimport ERR_DUPLICATE_CONFLICT
from gnats.jetstream.publish.inbound cimport Inbound, inbound_free, inbound_init, own_header, transform_subject
from gnats.jetstream.publish.puback cimport respond_duplicate
from gnats.jetstream.publish.refusal cimport ANSWER, Refusal, answer_refused, refuse
from gnats.jetstream.state.entry cimport (
    ALONE,
    MSG_DUPLICATE,
    MSG_REFUSED,
    MSG_STORED,
    MSG_UNHEARD,
    Outcome,
    StreamEntry,
)
from gnats.jetstream.state.headers cimport (
    H_BATCH_ID,
    H_REQUEST_INFO,
    has_header,
    header_set,
    parse_headers,
    with_text_header,
    without_header,
)
from gnats.jetstream.state.streamcore cimport StreamCore


cdef bint process_inbound_jetstream_msg(void *ctx, const Message *msg, const Subscription *sub) noexcept nogil:
    return process_publish(<StreamCore> ctx, js_poller_of(msg.ps), msg) != MSG_UNHEARD


cdef Outcome process_publish(StreamCore s, JsPoller *jp, const Message *msg) noexcept nogil:
    """Parse the header, take the stream's lock, and store the message, or give it to its atomic or fast batch."""
    cdef Inbound m
    cdef Slice pattern
    cdef Outcome outcome
    inbound_init(&m)
    m.subject = msg.subject
    m.reply = msg.reply
    m.hdr = msg.data
    m.hdr_n = msg.hdr
    m.msg = msg.data + msg.hdr
    m.n = msg.n - msg.hdr
    # When the message came through imported services, the requester's own reply subject has the fast batch's pattern.
    pattern = msg.hop.reply if msg.hop != NULL and msg.hop.reply.n else m.reply
    if m.hdr_n:
        parse_headers(m.hdr, m.hdr_n, &m.h)
        if unlikely(has_header(&m.h, H_REQUEST_INFO) or has_status(&m) or msg.trace != NULL):
            if not rewrite_header(&m, msg.trace != NULL):
                report_shortage(jp.ps)
                return MSG_REFUSED
        if unlikely(msg.trace != NULL):
            begin_trace(s, &m, msg.trace)
    s.enter()
    if unlikely(is_fast_batch(&pattern)) and not only_traced(&m):
        outcome = process_fast_batch_msg(s, jp, &m, &pattern)
    elif unlikely(header_set(&m.h, H_BATCH_ID)) and not only_traced(&m):
        outcome = process_atomic_batch_msg(s, jp, &m)
    else:
        outcome = store_inbound(s, jp, &m)
    s.leave(jp.ps)
    inbound_free(&m)
    return outcome


cdef inline bint only_traced(const Inbound *m) noexcept nogil:
    return m.trace != NULL and m.trace.only


cdef void begin_trace(StreamCore s, Inbound *m, MsgTrace *t) noexcept nogil:
    cdef Slice name
    name.p = <char *> s.name_p
    name.n = s.name_n
    m.trace = t
    trace_jetstream(t, &name)


cdef inline bint has_status(const Inbound *m) noexcept nogil:
    return m.hdr_n > 8 and m.hdr[8] != c'\r'


cdef bint rewrite_header(Inbound *m, bint traced) noexcept nogil:
    """Remove the status and Nats-Request-Info; in a traced message, disable Nats-Trace-Dest. They are not for readers
    of the stream. The header becomes a copy. False when out of memory."""
    cdef const char *disabled = b"trace disabled"
    cdef Slice dest
    cdef size_t rest
    if not own_header(m):
        return False
    m.hdr_n = remove_status(m.hdr, m.hdr_n)
    if traced and m.hdr_n:
        dest = named_header(m.hdr, m.hdr_n, b"Nats-Trace-Dest")
        if dest.p != NULL:
            rest = m.hdr + m.hdr_n - (dest.p + dest.n)
            memmove(dest.p + strlen(disabled), dest.p + dest.n, rest)
            put_text(dest.p, disabled)
            m.hdr_n = m.hdr_n - dest.n + strlen(disabled)
        else:
            m.hdr_n = with_text_header(m.hdr, m.hdr, m.hdr_n, b"Nats-Trace-Dest", disabled)
    m.hdr_n = without_header(m.hdr, m.hdr_n, b"Nats-Request-Info")
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True


# -- storing -----------------------------------------------------------------------------------------------------------

cdef Outcome process_jetstream_msg(StreamCore s, JsPoller *jp, Inbound *m) noexcept nogil:
    cdef Outcome outcome
    s.enter()
    outcome = store_inbound(s, jp, m)
    s.leave(jp.ps)
    return outcome


cdef Outcome store_inbound(StreamCore s, JsPoller *jp, Inbound *m) noexcept nogil:
    cdef StreamEntry e
    cdef Refusal r
    cdef Outcome outcome
    if not transform_subject(s, jp, m):
        return MSG_REFUSED
    outcome = check_message(s, m, &r)
    if outcome == MSG_STORED:
        if make_entry(s, jp, m, ALONE, &e, &r):
            return s.log.propose(s, jp, &e)
        outcome = MSG_REFUSED
    if outcome == MSG_REFUSED:
        answer_refused(s, jp, m.trace, &m.reply, &r, ANSWER, 0)
    elif outcome == MSG_DUPLICATE:
        if unlikely(m.trace != NULL):
            trace_jetstream_error(m.trace, TRACE_DUPLICATE, NULL, 0)
        if r.last == 0:   # the one before is in flight
            refuse(&r, ERR_DUPLICATE_CONFLICT)
            answer_refused(s, jp, NULL, &m.reply, &r, ANSWER, 0)
        else:
            respond_duplicate(s, jp, &m.reply, r.last)
    return outcome
