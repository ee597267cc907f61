"""A message on its way into a stream; see inbound.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.msgtrace cimport TRACE_LAST_SUBJECT_SEQUENCE, trace_jetstream_error
from gnats.core.quoting cimport quote
from gnats.core.slice cimport Slice
from gnats.includes.atomics cimport unlikely
from gnats.jetstream.engine cimport Local
from gnats.jetstream.headers cimport H_ROLLUP, parse_headers, put_uint64
from gnats.jetstream.puback cimport (
    ERR_ROLLUP_FAILED,
    ERR_STORE_FAILED,
    ERR_WRONG_LAST_SEQUENCE,
    respond_error,
    send_error,
)
from gnats.jetstream.streamcore cimport StreamCore

cdef enum:
    HEADER_MORE = 128               # what a header may grow by here


cdef bint refuse_with(
    StreamCore s, Local *local, const Inbound *m, int err_code, const char *text, size_t n
) noexcept nogil:
    if unlikely(local.mt != NULL):
        trace_jetstream_error(local.mt, err_code, text, n)
    if m.told_as == TOLD:
        respond_error(s, local, &m.reply, err_code, text, n)
    else:
        send_error(s, local, &m.reply, m.flow_seq if m.told_as == TOLD_IN_FLOW else 0, err_code, text, n)
    return False


cdef bint refuse(StreamCore s, Local *local, const Inbound *m, int err_code) noexcept nogil:
    return refuse_with(s, local, m, err_code, NULL, 0)


cdef bint refuse_sequence(
    StreamCore s, Local *local, const Inbound *m, uint64_t last, bint of_subject
) noexcept nogil:
    cdef char[20] digits
    cdef size_t n = put_uint64(digits, last)
    refuse_with(s, local, m, ERR_WRONG_LAST_SEQUENCE, digits, n)
    if unlikely(local.mt != NULL) and of_subject:
        trace_jetstream_error(local.mt, TRACE_LAST_SUBJECT_SEQUENCE, digits, n)
    return False


cdef bint refuse_store(StreamCore s, Local *local, const Inbound *m, const char *why, size_t n) noexcept nogil:
    return refuse_with(s, local, m, ERR_STORE_FAILED, why, n)


cdef void refuse_rollup(StreamCore s, Local *local, const Inbound *m) noexcept nogil:
    cdef const Slice *v = &m.h.values[H_ROLLUP]
    cdef char *text = <char *> malloc(5 * v.n + 32)
    cdef char *low
    cdef size_t i, n
    if text == NULL:
        return
    low = text + 4 * v.n + 32
    for i in range(v.n):
        low[i] = v.p[i] + 32 if c'A' <= v.p[i] <= c'Z' else v.p[i]
    memcpy(text, b"rollup value invalid: ", 22)
    n = quote(text + 22, low, v.n) - text
    refuse_with(s, local, m, ERR_ROLLUP_FAILED, text, n)
    free(text)


cdef bint own_header(Inbound *m) noexcept nogil:
    cdef char *copy = <char *> malloc(m.hdr_n + HEADER_MORE)
    if copy == NULL:
        return False
    memcpy(copy, m.hdr, m.hdr_n)
    free(m.owned)
    m.owned = m.hdr = copy
    parse_headers(m.hdr, m.hdr_n, &m.h)
    return True
