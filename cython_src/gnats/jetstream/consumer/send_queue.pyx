"""The queue of messages that a consumer sends next; see send_queue.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset, strlen

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


cdef bint outq_ended(
    OutQ *q, const char *dest, size_t dest_n, const char *text, int64_t msgs, int64_t bytes
) noexcept nogil:
    cdef char[FIELDS_ROOM] fields
    snprintf(
        fields, FIELDS_ROOM, b"Nats-Pending-Messages: %lld\r\nNats-Pending-Bytes: %lld\r\n", <long long> msgs,
        <long long> bytes)
    return outq_status(q, dest, dest_n, NULL, 0, text, fields)
