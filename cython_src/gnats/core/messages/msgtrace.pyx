"""Notes of what happens to a traced message; see msgtrace.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset, strlen

from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport NUMBER_ROOM, put_number, put_text
from gnats.includes.text cimport put as put_bytes

cdef enum:
    FIRST = 1024      # bytes allocated first


cdef inline void put(MsgTrace *t, const void *p, size_t n) noexcept nogil:
    cdef char *grown
    cdef size_t room
    if t.n + n > t.room:
        room = 2 * (t.n + n)
        grown = <char *> realloc(t.data, room)
        if grown == NULL:
            t.failed = 1
            return
        t.data = grown
        t.room = room
    if n:
        memcpy(t.data + t.n, p, n)
    t.n += n


cdef MsgTrace *trace_new(const char *header, size_t n, const Slice *dest, size_t size) noexcept nogil:
    cdef MsgTrace *t = <MsgTrace *> malloc(sizeof(MsgTrace))
    cdef TraceHead head
    if t == NULL:
        return NULL
    memset(t, 0, sizeof(MsgTrace))
    t.room = FIRST
    t.data = <char *> malloc(FIRST)
    if t.data == NULL:
        free(t)
        return NULL
    head.header_n = n
    head.dest_n = dest.n
    head.size = size
    put(t, &head, sizeof(TraceHead))
    put(t, header, n)
    put(t, dest.p, dest.n)
    return t


cdef void trace_add(
    MsgTrace *t, char kind, int code, uint64_t cid, const Slice *a, const Slice *b, const Slice *c
) noexcept nogil:
    cdef TraceEntry e
    cdef size_t before = t.n
    memset(&e, 0, sizeof(TraceEntry))
    e.ts = realtime_ns()
    e.cid = cid
    e.kind = kind
    e.code = <uint8_t> code
    e.n[0] = a.n
    e.n[1] = b.n if b != NULL else 0
    e.n[2] = c.n if c != NULL else 0
    put(t, &e, sizeof(TraceEntry))
    put(t, a.p, e.n[0])
    if b != NULL:
        put(t, b.p, e.n[1])
    if c != NULL:
        put(t, c.p, e.n[2])
    if t.failed:
        t.n = before


cdef void trace_free(MsgTrace *t) noexcept nogil:
    free(t.data)
    free(t)


cdef void trace_ingress(
    MsgTrace *t, uint8_t kind, uint64_t cid, const Slice *subject, const Slice *account
) noexcept nogil:
    trace_add(t, c'i', kind, cid, subject, account, NULL)


cdef void trace_mapping(MsgTrace *t, const Slice *to) noexcept nogil:
    trace_add(t, c'm', 0, 0, to, NULL, NULL)


cdef void trace_refused(MsgTrace *t, int what, const Slice *subject) noexcept nogil:
    trace_add(t, c'x', what, 0, subject, NULL, NULL)


cdef void trace_stream_export(MsgTrace *t, const Slice *name, const Slice *to) noexcept nogil:
    trace_add(t, c'e', 0, 0, name, to, NULL)


cdef void trace_service_import(MsgTrace *t, const Slice *name, const Slice *subject, const Slice *to) noexcept nogil:
    trace_add(t, c's', 0, 0, name, subject, to)


cdef void trace_egress(MsgTrace *t, uint64_t cid, const Slice *subject, const Slice *queue, int error) noexcept nogil:
    trace_add(t, c'g', error, cid, subject, queue, NULL)


cdef void trace_hop(MsgTrace *t, uint8_t kind, uint64_t cid, const Slice *hop, int error) noexcept nogil:
    cdef Slice of_kind
    of_kind.p = <char *> &kind
    of_kind.n = sizeof(kind)
    trace_add(t, c'h', error, cid, hop, &of_kind, NULL)


cdef Slice trace_next_hop(MsgTrace *t, char *out, size_t room) noexcept nogil:
    cdef Slice hop
    cdef char *p = out
    cdef size_t before = min(t.hop.n, room - NUMBER_ROOM - strlen(b"."))
    t.hops += 1
    if before:
        p = put_text(put_bytes(p, t.hop.p, before), b".")
    hop.p = out
    hop.n = put_number(p, t.hops) - out
    return hop


cdef void trace_jetstream(MsgTrace *t, const Slice *stream) noexcept nogil:
    trace_add(t, c'j', 0, 0, stream, NULL, NULL)


cdef void trace_jetstream_subject(MsgTrace *t, const Slice *subject, bint no_interest) noexcept nogil:
    trace_add(t, c'k', no_interest, 0, subject, NULL, NULL)


cdef void trace_jetstream_error(MsgTrace *t, int64_t error, const char *text, size_t n) noexcept nogil:
    cdef Slice more
    more.p = <char *> text
    more.n = n
    trace_add(t, c'l', 0, <uint64_t> error, &more, NULL, NULL)
