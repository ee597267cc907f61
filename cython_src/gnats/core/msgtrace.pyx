"""Tracing of messages; see msgtrace.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset

from gnats.core.account cimport Account, TraceDest, account_trace_dest
from gnats.core.guard cimport Guarded
from gnats.core.headers cimport LINE_END, VERSION_LINE, begin_header_without, header_line_end
from gnats.core.inbox cimport EV_MSG_TRACE, Inbox
from gnats.core.parser cimport CLIENT, PubArg, Slice
from gnats.core.pollstate cimport poller_random
from gnats.core.records cimport LOG_TRACE_BAD_DESTINATION, LOG_TRACE_ORIGIN
from gnats.core.subject cimport is_valid_publish_subject
from gnats.includes.linux cimport realtime_ns

cdef extern from "<strings.h>" nogil:
    int strncasecmp(const char *a, const char *b, size_t n)

cdef const char *VERSION = b"NATS/1.0\r\n"
cdef const char *DEST = b"Nats-Trace-Dest"
cdef const char *ONLY = b"Nats-Trace-Only"
cdef const char *ORIGIN = b"Nats-Trace-Origin-Account"
cdef const char *PARENT = b"traceparent"
cdef const char *DISABLED = b"trace disabled"

cdef enum:
    VERSION_N = VERSION_LINE
    DEST_N = 15
    ORIGIN_N = 25
    PARENT_N = 11
    DISABLED_N = 14
    ALLOWANCE = 64    # of a header beside its lines
    FIRST = 1024


# What a header says about tracing; n is 0 for what it does not say.
cdef struct Asked:
    Slice dest
    Slice only
    Slice origin
    bint parent       # a sampled traceparent


cdef class Traced(Guarded):
    """A connection whose messages may be traced; see Client."""

    cdef bint may_be_traced(self, const char *msg) noexcept nogil:
        cdef const char *p = msg + VERSION_N
        cdef const char *end = msg + self.pa.hdr
        cdef bint external
        if self.traced or self.kind != CLIENT or self.pa.hdr <= VERSION_N + DEST_N:
            return False
        external = account_trace_dest(<Account> self.account) != NULL
        while end - p > PARENT_N:
            if p[0] == c'N':
                if end - p > DEST_N and memcmp(p, DEST, DEST_N) == 0:
                    return True
            elif external and (p[0] | 32) == c't' and strncasecmp(p, PARENT, PARENT_N) == 0:
                return True
            p = <const char *> memchr(p, c'\n', end - p)
            if p == NULL:
                break
            p += 1
        return False

    cdef int init_msg_trace(self, const char *msg, bint *disable) noexcept nogil:
        cdef Asked asked
        cdef Slice dest
        cdef const TraceDest *own
        cdef bint external, only
        if not read_header(msg, self.pa.hdr, &asked):
            return TRACE_NOT
        external = asked.dest.n == 0
        only = not external and is_on(&asked.only)
        if asked.origin.n:
            self.log(LOG_TRACE_ORIGIN, 0, asked.origin.p, asked.origin.n)
            disable[0] = not only
            return TRACE_SKIP if only else TRACE_NOT
        dest = asked.dest
        if external:
            own = account_trace_dest(<Account> self.account)
            if own == NULL:
                return TRACE_NOT
            if own.sampling < 100 and poller_random(self.ps) % 100 > own.sampling:
                disable[0] = True
                return TRACE_NOT
            dest.p = <char *> own.data
            dest.n = own.n
        if not is_valid_publish_subject(dest.p, dest.n):
            self.log(LOG_TRACE_BAD_DESTINATION, 0, dest.p, dest.n)
            return TRACE_SKIP if only else TRACE_NOT
        if is_reserved(&dest) or (self.permissions != NULL and not self.may_publish(&dest)):
            self.refuse_publish(&dest)
            return TRACE_SKIP
        self.mt = trace_new(msg, self.pa.hdr, &dest, self.pa.size)
        if self.mt == NULL:
            return TRACE_SKIP if only else TRACE_NOT
        self.mt.only = only
        trace_add(self.mt, c'i', 0, self.cid, &self.pa.subject, NULL, NULL)
        return TRACE_ON

    cdef void trace_over_max_payload(self) noexcept nogil:
        cdef int32_t hdr = self.pa.hdr
        cdef bint disable = False
        if hdr <= 0 or not self.rest.n:
            return
        if self.rest.n < <size_t> hdr:
            self.pa.hdr = <int32_t> self.rest.n
        if self.may_be_traced(self.rest.p) and self.init_msg_trace(self.rest.p, &disable) == TRACE_ON:
            trace_refused(self.mt, REFUSED_SIZE, &self.pa.subject)
            self.send_msg_trace()
        self.pa.hdr = hdr

    cdef void send_msg_trace(self) noexcept nogil:
        cdef MsgTrace *t = self.mt
        self.mt = NULL
        if not t.failed:
            (<Inbox> self.inbox).post_data(EV_MSG_TRACE, <void *> self, &self.source, 0, 0, t.data, t.n)
        free(t.data)
        free(t)


cdef inline bint is_reserved(const Slice *s) noexcept nogil:
    return (
        (s.n > 5 and memcmp(s.p, b"_GR_.", 5) == 0) or (s.n > 4 and memcmp(s.p, b"$GR.", 4) == 0)
        or (s.n >= 5 and memcmp(s.p, b"$NRG.", 5) == 0))


cdef inline bint is_on(const Slice *s) noexcept nogil:
    return (
        (s.n == 1 and s.p[0] == c'1') or (s.n == 4 and strncasecmp(s.p, b"true", 4) == 0)
        or (s.n == 2 and strncasecmp(s.p, b"on", 2) == 0))


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef inline int hex_digit(char c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    c |= 32
    return c - c'a' + 10 if c'a' <= c <= c'f' else -1


cdef bint is_sampled(const Slice *value) noexcept nogil:
    """Does a traceparent's last of four fields, one signed byte in hex, have its lowest bit set?"""
    cdef size_t i
    cdef int dashes = 0, high, low
    for i in range(value.n):
        dashes += value.p[i] == c'-'
    if dashes != 3 or value.n < 3 or value.p[value.n - 3] != c'-':
        return False
    low = hex_digit(value.p[value.n - 1])
    if value.p[value.n - 2] == c'+' or value.p[value.n - 2] == c'-':
        return low >= 0 and low & 1
    high = hex_digit(value.p[value.n - 2])
    return 0 <= high < 8 and low >= 0 and low & 1


cdef bint next_field(const char **at, const char *end, Slice *key, Slice *value) noexcept nogil:
    """The field at `at`, which goes on behind it, as nats-server takes headers apart for traces: a key is all before
    the next colon, a value all behind it up to CR LF, without blanks around it. False: there is no other one."""
    cdef const char *p = at[0]
    cdef const char *colon = <const char *> memchr(p, c':', end - p) if p < end else NULL
    if colon == NULL:
        return False
    key.p = <char *> p
    key.n = colon - p
    p = colon + 1
    while p < end and is_blank(p[0]):
        p += 1
    value.p = <char *> p
    p += header_line_end(p, end - p, 0)
    if p == end:
        return False
    at[0] = p + LINE_END
    while p > value.p and is_blank((p - 1)[0]):
        p -= 1
    value.n = p - value.p
    return True


cdef bint read_header(const char *header, size_t n, Asked *asked) noexcept nogil:
    """Whether it asks for a trace, and the first value of each that matters."""
    cdef const char *p = header + VERSION_N
    cdef Slice key, value
    cdef Slice *known
    memset(asked, 0, sizeof(Asked))
    if n < VERSION_N or memcmp(header, VERSION, VERSION_N) != 0:
        return False
    while next_field(&p, header + n, &key, &value):
        if key.n == 0 or value.n == 0:
            continue
        known = NULL
        if key.n == DEST_N and memcmp(key.p, DEST, DEST_N) == 0:
            if asked.dest.n == 0 and value.n == DISABLED_N and memcmp(value.p, DISABLED, DISABLED_N) == 0:
                return False
            known = &asked.dest
        elif key.n == DEST_N and memcmp(key.p, ONLY, DEST_N) == 0:
            known = &asked.only
        elif key.n == ORIGIN_N and memcmp(key.p, ORIGIN, ORIGIN_N) == 0:
            known = &asked.origin
        elif key.n == PARENT_N and strncasecmp(key.p, PARENT, PARENT_N) == 0:
            asked.parent = asked.parent or is_sampled(&value)
        if known != NULL and known.n == 0:
            known[0] = value
    return asked.dest.n != 0 or asked.parent


def fields(bytes header not None) -> list:
    """The fields of a header block that have a value, in order, as traces have them: (key, value)."""
    cdef Slice key, value
    cdef const char *start = PyBytes_AS_STRING(header)
    cdef const char *p = start + VERSION_N
    cdef list found = []
    if len(header) >= VERSION_N and memcmp(start, VERSION, VERSION_N) == 0:
        while next_field(&p, start + len(header), &key, &value):
            if key.n and value.n:
                found.append((key.p[:key.n], value.p[:value.n]))
    return found


# ---- notes ----

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


cdef MsgTrace *trace_new(const char *header, size_t n, const Slice *dest, int32_t size) noexcept nogil:
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
    t.dest = dest[0]   # it lives as long as the message, or the batch
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


cdef void trace_jetstream(MsgTrace *t, const Slice *stream) noexcept nogil:
    trace_add(t, c'j', 0, 0, stream, NULL, NULL)


cdef void trace_jetstream_subject(MsgTrace *t, const Slice *subject, bint no_interest) noexcept nogil:
    trace_add(t, c'k', no_interest, 0, subject, NULL, NULL)


cdef void trace_jetstream_error(MsgTrace *t, int64_t error, const char *text, size_t n) noexcept nogil:
    cdef Slice more
    more.p = <char *> text
    more.n = n
    trace_add(t, c'l', 0, <uint64_t> error, &more, NULL, NULL)


# ---- the header of what is delivered ----

cdef inline char *copy(char *p, const char *text, size_t n) noexcept nogil:
    memcpy(p, text, n)
    return p + n


cdef char *set_trace_dest(PubArg *pa, const char *msg, size_t *n, const Slice *value, char *sizes) noexcept nogil:
    cdef size_t hdr = pa.hdr if pa.hdr > 0 else 0
    cdef size_t vn = value.n if value != NULL else DISABLED_N
    cdef char *out = <char *> malloc(n[0] + vn + ALLOWANCE)
    cdef char *p = out
    if out == NULL:
        return NULL
    p = begin_header_without(p, msg, hdr, DEST, DEST_N)
    p = copy(copy(p, DEST, DEST_N), b": ", 2)
    p = copy(p, <const char *> value.p if value != NULL else DISABLED, vn)
    p = copy(p, b"\r\n\r\n", 4)
    pa.hdr = <int32_t> (p - out)
    p = copy(p, msg + hdr, n[0] - hdr)
    n[0] = p - out
    pa.size = <int32_t> (n[0] - 2)
    pa.canonical = 0
    pa.hdb.p = sizes
    pa.hdb.n = snprintf(sizes, 12, b"%d", pa.hdr)
    pa.szb.p = sizes + 12
    pa.szb.n = snprintf(sizes + 12, 12, b"%d", pa.size)
    return out
