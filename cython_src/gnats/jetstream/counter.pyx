"""Message counters; see counter.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memmove

from gnats.core.parser cimport Slice
from gnats.jetstream.headers cimport H_INCR, add_header, find_header, parse_headers, remove_header
from gnats.jetstream.ingest cimport Inbound
from gnats.jetstream.jsonreq cimport JSON_OK, JSON_STRING, JsonError, JsonField, JsonValue, json_object
from gnats.jetstream.streamcore cimport StreamCore
from gnats.store.base cimport STORE_OK, StoreMsg

cdef JsonField FIELD[1]
FIELD[0].name = b"val"
FIELD[0].type = JSON_STRING


cdef bint read_decimal(const char *p, size_t n, Decimal *out) noexcept nogil:
    cdef size_t i = 1 if n and (p[0] == c'-' or p[0] == c'+') else 0
    cdef size_t start
    out.n = 0
    out.p = p
    out.negative = False
    if i == n:
        return False
    start = i
    while i < n:
        if not c'0' <= p[i] <= c'9':
            return False
        i += 1
    while start < n and p[start] == c'0':
        start += 1
    out.p = p + start
    out.n = n - start
    out.negative = p[0] == c'-' and out.n > 0
    return True


cdef inline int compare(const Decimal *a, const Decimal *b) noexcept nogil:
    """Without the signs."""
    if a.n != b.n:
        return -1 if a.n < b.n else 1
    return memcmp(a.p, b.p, a.n) if a.n else 0


cdef size_t add_decimals(const Decimal *a, const Decimal *b, char *out) noexcept nogil:
    cdef const Decimal *large = a
    cdef const Decimal *small = b
    cdef size_t n, i, start = 0
    cdef int digit, carry = 0
    if compare(a, b) < 0:
        large = b
        small = a
    n = large.n + 1   # one digit more, and room for a sign before it
    for i in range(n):
        digit = carry
        if i < large.n:
            digit += large.p[large.n - 1 - i] - c'0'
        if i < small.n:
            digit += (small.p[small.n - 1 - i] - c'0') * (1 if a.negative == b.negative else -1)
        carry = 0
        if digit < 0:
            digit += 10
            carry = -1
        elif digit > 9:
            digit -= 10
            carry = 1
        out[n - i] = <char> (c'0' + digit)
    start = 1
    while start < n and out[start] == c'0':
        start += 1
    if large.negative and not (start == n and out[n] == c'0'):
        start -= 1
        out[start] = c'-'
    memmove(out, out + start, n + 1 - start)
    return n + 1 - start


cdef CounterError apply_increment(StreamCore s, Inbound *m) noexcept nogil:
    cdef StoreMsg sm
    cdef JsonValue v
    cdef JsonError err
    cdef Decimal before, more
    cdef Slice sources
    cdef char *text
    cdef char *hdr
    read_decimal(m.h.values[H_INCR].p, m.h.values[H_INCR].n, &more)
    before.p = NULL
    before.n = 0
    before.negative = False
    sources.p = NULL
    sources.n = 0
    if s.store.load_last(m.subject.p, <unsigned int> m.subject.n, &sm) == STORE_OK:
        if json_object(sm.hdr + sm.hdr_n, sm.msg_n, FIELD, 1, &v, &err) != JSON_OK:
            return COUNTER_BROKEN
        if not v.set or not read_decimal(v.p, v.n, &before):
            before.n = 0
            before.negative = False
        sources = find_header(<char *> sm.hdr, sm.hdr_n, b"Nats-Counter-Sources", 20)
    text = <char *> malloc(max(before.n, more.n) + 16)
    if text == NULL:
        return COUNTER_NO_MEMORY
    memcpy(text, b'{"val":"', 8)
    m.val.p = text + 8
    m.val.n = add_decimals(&before, &more, text + 8)
    memcpy(text + 8 + m.val.n, b'"}', 2)
    m.counted = text
    m.msg = text
    m.n = m.val.n + 10
    if sources.p != NULL and sources.n:
        hdr = <char *> malloc(m.hdr_n + sources.n + 256)
        if hdr == NULL:
            return COUNTER_NO_MEMORY
        memcpy(hdr, m.hdr, m.hdr_n)
        m.hdr_n = remove_header(hdr, m.hdr_n, b"Nats-Counter-Sources", 20)
        m.hdr_n = add_header(hdr, hdr, m.hdr_n, b"Nats-Counter-Sources", 20, sources.p, sources.n)
        free(m.owned)
        m.owned = m.hdr = hdr
        parse_headers(m.hdr, m.hdr_n, &m.h)
    return COUNTER_OK


def probe_sum(bytes a not None, bytes b not None) -> bytes | None:
    """a + b in decimal; None when one of them is no number (for tests)."""
    cdef Decimal x, y
    cdef char *out
    if not read_decimal(PyBytes_AS_STRING(a), PyBytes_GET_SIZE(a), &x):
        return None
    if not read_decimal(PyBytes_AS_STRING(b), PyBytes_GET_SIZE(b), &y):
        return None
    out = <char *> malloc(max(x.n, y.n) + 2)
    if out == NULL:
        raise MemoryError
    try:
        return PyBytes_FromStringAndSize(out, add_decimals(&x, &y, out))
    finally:
        free(out)
