"""Error replies to publishers; see refusal.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc

from gnats.core.messages.msgtrace cimport TRACE_LAST_SUBJECT_SEQUENCE, MsgTrace, trace_jetstream_error
from gnats.core.runtime.quoting cimport quote
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport unlikely
from gnats.includes.text cimport put_text
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.publish.puback cimport respond_error, send_error
from gnats.jetstream.state.headers cimport put_uint64
from gnats.jetstream.state.streamcore cimport StreamCore

cdef enum:
    MORE = 32            # bytes of the text about an invalid rollup, without the value


cdef void answer_error(
    StreamCore s, JsPoller *jp, MsgTrace *trace, const Slice *reply, int err_code, const Slice *text, AnswerMode mode,
    uint64_t flow_seq
) noexcept nogil:
    if unlikely(trace != NULL):
        trace_jetstream_error(trace, err_code, text.p, text.n)
    if mode == ANSWER:
        respond_error(s, jp, reply, err_code, text.p, text.n)
    else:
        send_error(s, jp, reply, flow_seq if mode == ANSWER_IN_FLOW else 0, err_code, text.p, text.n)


cdef void answer_bad_rollup(
    StreamCore s, JsPoller *jp, MsgTrace *trace, const Slice *reply, const Refusal *r, AnswerMode mode,
    uint64_t flow_seq
) noexcept nogil:
    """Reply that a rollup's value is invalid, with the value in lower case and quoted."""
    cdef const Slice *v = &r.text
    cdef Slice text
    cdef char *low
    cdef size_t i
    text.p = <char *> malloc(5 * v.n + MORE)
    if text.p == NULL:
        report_shortage(jp.ps)
        return
    low = text.p + 4 * v.n + MORE
    for i in range(v.n):
        low[i] = v.p[i] + 32 if c'A' <= v.p[i] <= c'Z' else v.p[i]
    text.n = quote(put_text(text.p, b"rollup value invalid: "), low, v.n) - text.p
    answer_error(s, jp, trace, reply, r.err_code, &text, mode, flow_seq)
    free(text.p)


cdef void answer_refused(
    StreamCore s, JsPoller *jp, MsgTrace *trace, const Slice *reply, const Refusal *r, AnswerMode mode,
    uint64_t flow_seq
) noexcept nogil:
    cdef char[20] digits
    cdef Slice text = r.text
    if r.err_code == 0:
        if r.form == NO_MEMORY:
            report_shortage(jp.ps)
        elif r.form == STORE_BROKEN and trace != NULL:
            trace_jetstream_error(trace, -<int64_t> r.last, NULL, 0)
        return
    if r.form == TEXT_ROLLUP:
        answer_bad_rollup(s, jp, trace, reply, r, mode, flow_seq)
        return
    if r.form != TEXT_AS_IT_IS:
        text.p = digits
        text.n = put_uint64(digits, r.last)
    answer_error(s, jp, trace, reply, r.err_code, &text, mode, flow_seq)
    if unlikely(trace != NULL) and r.form == TEXT_LAST_OF_SUBJECT:
        trace_jetstream_error(trace, TRACE_LAST_SUBJECT_SEQUENCE, digits, text.n)
