"""The queue of messages that a consumer sends next; see send_queue.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memmove, memset, strlen

from gnats.core.messages.headers cimport CRLF
from gnats.includes.text cimport put, put_text

cdef enum:
    FIRST_ROOM = 4096
    FIELDS_ROOM = 96     # bytes of two header lines with numbers


cdef Outgoing *outq_add(OutQ *q, size_t dest_n, size_t reply_n, size_t hdr_n) noexcept nogil:
    cdef size_t size = (sizeof(Outgoing) + dest_n + reply_n + hdr_n + 7) & ~<size_t> 7
    cdef size_t cap = q.cap
    cdef char *grown
    cdef Outgoing *o
    if q.n + size > cap:
        cap = max(2 * cap, max(q.n + size, <size_t> FIRST_ROOM))
        grown = <char *> realloc(q.p, cap)
        if grown == NULL:
            return NULL
        q.p = grown
        q.cap = cap
    o = <Outgoing *> (q.p + q.n)
    memset(o, 0, sizeof(Outgoing))
    o.size = <uint32_t> size
    o.dest_n = <uint32_t> dest_n
    o.reply_n = <uint32_t> reply_n
    o.hdr_n = <uint32_t> hdr_n
    q.n += size
    return o


cdef void outq_drop(OutQ *q, const Outgoing *o) noexcept nogil:
    q.n -= o.size


cdef bint outq_status(
    OutQ *q, const char *dest, size_t dest_n, const char *reply, size_t reply_n, const char *text, const char *fields
) noexcept nogil:
    cdef size_t text_n = strlen(text), fields_n = strlen(fields)
    cdef const char *version = b"NATS/1.0 "
    cdef Outgoing *o = outq_add(
        q, dest_n, reply_n, strlen(version) + text_n + strlen(CRLF) + fields_n + strlen(CRLF))
    cdef char *p
    if o == NULL:
        return False
    memcpy(out_dest(o), dest, dest_n)
    if reply_n:
        memcpy(out_reply(o), reply, reply_n)
    p = put_text(put(put_text(out_hdr(o), version), text, text_n), CRLF)
    put_text(put(p, fields, fields_n), CRLF)
    return True


cdef bint outq_answer(OutQ *q, const char *dest, size_t dest_n, uint64_t after) noexcept nogil:
    cdef Outgoing *o = outq_add(q, dest_n, 0, 0)
    if o == NULL:
        return False
    o.after = after
    o.body = b""
    memcpy(out_dest(o), dest, dest_n)
    return True


cdef inline size_t end_of(const OutQ *q, uint64_t committed) noexcept nogil:
    """Return where the entries end that may leave."""
    cdef size_t end = q.at
    while end < q.n and (<Outgoing *> (q.p + end)).after <= committed:
        end += (<Outgoing *> (q.p + end)).size
    return end


cdef void outq_cut(OutQ *q, uint64_t committed) noexcept nogil:
    q.n = end_of(q, committed)


cdef void outq_take(OutQ *q, OutQ *to, uint64_t committed) noexcept nogil:
    cdef size_t end = end_of(q, committed)
    cdef char *grown
    if end - q.at > to.cap:
        grown = <char *> realloc(to.p, end - q.at)
        if grown == NULL:
            return
        to.p = grown
        to.cap = end - q.at
    if end > q.at:
        memcpy(to.p, q.p + q.at, end - q.at)
    to.n = end - q.at
    q.at = end
    if q.at == q.n:
        q.at = q.n = 0
    elif q.at > q.n // 2:
        memmove(q.p, q.p + q.at, q.n - q.at)
        q.n -= q.at
        q.at = 0


cdef bint outq_ended(
    OutQ *q, const char *dest, size_t dest_n, const char *text, int64_t msgs, int64_t bytes
) noexcept nogil:
    cdef char[FIELDS_ROOM] fields
    snprintf(
        fields, FIELDS_ROOM, b"Nats-Pending-Messages: %lld\r\nNats-Pending-Bytes: %lld\r\n", <long long> msgs,
        <long long> bytes)
    return outq_status(q, dest, dest_n, NULL, 0, text, fields)
