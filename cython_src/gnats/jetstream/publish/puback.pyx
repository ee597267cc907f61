"""Replies to publishers of a stream; see puback.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, strlen

from gnats.core.runtime.quoting cimport put_json_string, quote
from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport put, put_text
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.engine.outbox cimport publish_later
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.publish.errors cimport PublishError, find_error
from gnats.jetstream.state.batchtable cimport MAX_BATCH_ID
from gnats.jetstream.state.headers cimport put_uint64
from gnats.jetstream.state.streamcore cimport StreamCore

cdef enum:
    ANSWER_ROOM = 1024      # bytes of a reply that fits on the stack


cdef void respond_error(
    StreamCore s, JsPoller *jp, const Slice *reply, int err_code, const char *text, size_t n
) noexcept nogil:
    if not s.cfg.no_ack:
        send_error(s, jp, reply, 0, err_code, text, n)


cdef void send_error(
    StreamCore s, JsPoller *jp, const Slice *reply, uint64_t flow_seq, int err_code, const char *text, size_t n
) noexcept nogil:
    cdef char[ANSWER_ROOM] few
    cdef const PublishError *e = find_error(err_code)
    cdef size_t words, need, more
    cdef char *out = few
    cdef char *p
    if reply.n == 0:
        return
    words = strlen(e.text)
    need = 6 * (words + n) + s.error_end_n + 160
    if need > ANSWER_ROOM:
        out = <char *> malloc(need)
        if out == NULL:
            report_shortage(jp.ps)
            return
    p = out
    if flow_seq:
        p += snprintf(p, 64, b'{"type":"err","seq":%llu,', <unsigned long long> flow_seq)
    else:
        p[0] = c'{'
        p += 1
    p += snprintf(p, 96, b'"error":{"code":%d,"err_code":%d,"description":', e.code, err_code)
    p += put_json_string(p, e.text, words)
    if n:
        # Join the two JSON strings: remove the quotes between them.
        more = put_json_string(p, text, n)
        memmove(p - 1, p + 1, more - 1)
        p += more - 2
    if flow_seq:
        p = put_text(p, b"}}")
    else:
        p = put(p, s.error_end, s.error_end_n)
    publish_later(jp, s, reply.p, reply.n, NULL, 0, out, p - out, True)
    if out != few:
        free(out)


cdef void respond_ack(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq) noexcept nogil:
    if not s.cfg.no_ack:
        send_ack(s, jp, reply, seq, b"}", strlen(b"}"))


cdef void respond_duplicate(StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq) noexcept nogil:
    cdef const char *more = b',"duplicate": true}'
    if not s.cfg.no_ack:
        send_ack(s, jp, reply, seq, more, strlen(more))


cdef void respond_counted(
    StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq, const Slice *value
) noexcept nogil:
    cdef char *more
    cdef char *p
    if s.cfg.no_ack or reply.n == 0:
        return
    more = <char *> malloc(value.n + 16)
    if more == NULL:
        report_shortage(jp.ps)
        return
    p = put_text(put(put_text(more, b',"val":"'), value.p, value.n), b'"}')
    send_ack(s, jp, reply, seq, more, p - more)
    free(more)


cdef void send_batch_ack(
    StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq, const char *id, size_t id_n, uint64_t count,
    bint duplicate
) noexcept nogil:
    cdef char[4 * MAX_BATCH_ID + 128] more
    cdef char *p = more
    if duplicate:
        p = put_text(p, b',"duplicate": true')
    p = quote(put_text(p, b',"batch":'), id, id_n)
    p = put_text(p, b',"count":')
    p += put_uint64(p, count)
    p[0] = c'}'
    send_ack(s, jp, reply, seq, more, p + 1 - more)


cdef inline void send_ack(
    StreamCore s, JsPoller *jp, const Slice *reply, uint64_t seq, const char *more, size_t n
) noexcept nogil:
    cdef char[ANSWER_ROOM] few
    cdef char *out = few
    cdef size_t at = s.pub_ack_n
    if reply.n == 0:
        return
    if at + 20 + n > ANSWER_ROOM:
        out = <char *> malloc(at + 20 + n)
        if out == NULL:
            report_shortage(jp.ps)
            return
    memcpy(out, s.pub_ack, at)
    at += put_uint64(out + at, seq)
    memcpy(out + at, more, n)
    publish_later(jp, s, reply.p, reply.n, NULL, 0, out, at + n, False)
    if out != few:
        free(out)
