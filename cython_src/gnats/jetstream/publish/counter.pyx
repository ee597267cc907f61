"""Message counters; see counter.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from gnats.core.messages.headers cimport named_header
from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport put_text
from gnats.jetstream.engine.jsonreq cimport JSON_OK, JSON_STRING, JsonError, JsonField, JsonValue, json_object
from gnats.jetstream.publish.countersources cimport (
    SOURCES_BAD,
    SOURCES_OK,
    CounterSources,
    sources_free,
    sources_put,
    sources_read,
    sources_room,
    sources_set,
)
from gnats.jetstream.publish.errors cimport ERR_INCR_DISABLED, ERR_INCR_INVALID, ERR_INCR_PAYLOAD
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.publish.inflight cimport InFlight, in_flight_of
from gnats.jetstream.publish.refusal cimport Refusal, refuse
from gnats.jetstream.state.headers cimport (
    H_EXPECTED_LAST_MSG_ID,
    H_EXPECTED_LAST_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ,
    H_EXPECTED_LAST_SUBJ_SEQ_SUBJ,
    H_EXPECTED_STREAM,
    H_INCR,
    H_ROLLUP,
    H_STREAM_SOURCE,
    MsgHeaders,
    header_set,
    parse_headers,
    with_set_header,
)
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.base cimport STORE_OK, STORE_UNREADABLE, StoreMsg

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
    """Compare the magnitudes."""
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
    n = large.n + 1   # one more digit; out[0] is for a sign
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


cdef size_t put_decimal(const Decimal *d, char *out) noexcept nogil:
    """Write a number with its sign, n + 1 characters at most; return their number."""
    if d.n == 0:
        out[0] = c'0'
        return 1
    out[0] = c'-'
    memcpy(out + d.negative, d.p, d.n)
    return d.n + d.negative


cdef inline void read_or_zero(const char *p, size_t n, Decimal *out) noexcept nogil:
    if not read_decimal(p, n, out):
        out.n = 0
        out.negative = False


cdef bint read_value(const char *p, size_t n, Decimal *out) noexcept nogil:
    """Parse the value in a counter's payload. False when the payload is not a JSON object."""
    cdef JsonValue v
    cdef JsonError err
    if json_object(p, n, FIELD, 1, &v, &err) != JSON_OK:
        return False
    read_or_zero(v.p, v.n if v.set else 0, out)
    return True


cdef bint next_word(Slice *rest, Slice *word) noexcept nogil:
    """Split off the word before the next blank; rest.p becomes NULL after the last one. False without a word."""
    cdef char *blank
    if rest.p == NULL:
        return False
    word[0] = rest[0]
    blank = <char *> memchr(rest.p, c' ', rest.n)
    if blank == NULL:
        rest.p = NULL
    else:
        word.n = blank - rest.p
        rest.p = blank + 1
        rest.n -= word.n + 1
    return True


cdef void find_origin(const Inbound *m, Slice *stream, Slice *subject) noexcept nogil:
    """Find the origin's stream and subject in the header.

    Nats-Stream-Source: <stream> <sequence> <filters> <destinations> <subject>[ <identity>]
    """
    cdef Slice rest = m.h.values[H_STREAM_SOURCE], word
    cdef int _
    subject[0] = m.subject
    next_word(&rest, stream)
    for _ in range(4):
        if not next_word(&rest, &word):
            return
    subject[0] = word


# Memory that add_increment() frees at its end.
cdef struct Made:
    CounterSources sources
    char *seen               # the origin's value
    char *list               # Nats-Counter-Sources


cdef CounterError follow_origin(Inbound *m, Made *made, Decimal *more, Slice *more_text) noexcept nogil:
    """Compute the increment of a sourced message: its value is the origin's counter, not an increment.

    The increment is the difference from the origin's last value in Nats-Counter-Sources.
    """
    cdef Decimal value, before
    cdef Slice stream, subject, seen, last
    if not read_value(m.msg, m.n, &value):
        return COUNTER_BROKEN
    find_origin(m, &stream, &subject)
    made.seen = <char *> malloc(value.n + 2)
    if made.seen == NULL:
        return COUNTER_NO_MEMORY
    seen.p = made.seen
    seen.n = put_decimal(&value, seen.p)
    if not sources_set(&made.sources, &stream, &subject, &seen, &last):
        return COUNTER_NO_MEMORY
    read_or_zero(last.p, last.n, &before)
    before.negative = not before.negative and before.n > 0
    more_text.p = <char *> malloc(max(value.n, before.n) + 2)
    if more_text.p == NULL:
        return COUNTER_NO_MEMORY
    more_text.n = add_decimals(&value, &before, more_text.p)
    read_decimal(more_text.p, more_text.n, more)
    return COUNTER_OK


cdef CounterError write_counter(
    Inbound *m, Made *made, const Decimal *before, const Decimal *more, const Slice *more_text
) noexcept nogil:
    cdef char *text = <char *> malloc(max(before.n, more.n) + 16)
    cdef char *hdr
    cdef size_t list_n = 0
    if text == NULL:
        return COUNTER_NO_MEMORY
    m.counted = text
    m.value.p = put_text(text, b'{"val":"')
    m.value.n = add_decimals(before, more, m.value.p)
    m.msg = text
    m.n = put_text(m.value.p + m.value.n, b'"}') - text
    if made.sources.n:
        made.list = <char *> malloc(sources_room(&made.sources))
        if made.list == NULL:
            return COUNTER_NO_MEMORY
        list_n = sources_put(&made.sources, made.list)
    if list_n or more_text.p != NULL:
        hdr = <char *> malloc(m.hdr_n + list_n + more_text.n + 256)
        if hdr == NULL:
            return COUNTER_NO_MEMORY
        memcpy(hdr, m.hdr, m.hdr_n)
        if more_text.p != NULL:
            m.hdr_n = with_set_header(hdr, m.hdr_n, b"Nats-Incr", more_text.p, more_text.n)
        if list_n:
            m.hdr_n = with_set_header(hdr, m.hdr_n, b"Nats-Counter-Sources", made.list, list_n)
        free(m.owned)
        m.owned = m.hdr = hdr
        parse_headers(m.hdr, m.hdr_n, &m.h)
    return COUNTER_OK


cdef CounterError add_increment(StreamCore s, Inbound *m, const InFlight *f) noexcept nogil:
    cdef const Inbound *last
    cdef const char *value
    cdef size_t value_n
    cdef StoreMsg sm
    cdef Decimal before, more
    cdef Slice header, sources, more_text
    cdef Made made
    cdef CounterError err = COUNTER_OK
    cdef int read = SOURCES_OK, rc
    in_flight_of(f, m.subject.p, m.subject.n, &last)
    memset(&made, 0, sizeof(Made))
    before.p = NULL
    before.n = 0
    before.negative = False
    more_text.p = NULL
    more_text.n = 0
    read_decimal(m.h.values[H_INCR].p, m.h.values[H_INCR].n, &more)
    if last != NULL:
        rc = STORE_OK
        header.p = last.hdr
        header.n = last.hdr_n
        value = last.msg
        value_n = last.n
    else:
        rc = s.store.load_last(m.subject.p, <unsigned int> m.subject.n, &sm)
        header.p = <char *> sm.hdr
        header.n = sm.hdr_n
        value = sm.hdr + sm.hdr_n
        value_n = sm.msg_n
    if rc == STORE_UNREADABLE:
        return COUNTER_NO_MEMORY
    if rc == STORE_OK:
        if not read_value(value, value_n, &before):
            return COUNTER_BROKEN
        sources = named_header(header.p, header.n, b"Nats-Counter-Sources")
        if sources.p != NULL and sources.n:
            read = sources_read(&made.sources, sources.p, sources.n)
    if read != SOURCES_OK:
        err = COUNTER_BROKEN if read == SOURCES_BAD else COUNTER_NO_MEMORY
    elif header_set(&m.h, H_STREAM_SOURCE):
        err = follow_origin(m, &made, &more, &more_text)
    if err == COUNTER_OK:
        err = write_counter(m, &made, &before, &more, &more_text)
    sources_free(&made.sources)
    free(made.seen)
    free(made.list)
    free(more_text.p)
    return err


cdef bint check_increment(StreamCore s, const Inbound *m, Refusal *r) noexcept nogil:
    cdef const MsgHeaders *h = &m.h
    cdef Decimal d
    if not read_decimal(h.values[H_INCR].p, h.values[H_INCR].n, &d):
        return refuse(r, ERR_INCR_INVALID)
    if m.sourced:
        return True
    if not s.cfg.allow_counter:
        return refuse(r, ERR_INCR_DISABLED)
    if m.n:
        return refuse(r, ERR_INCR_PAYLOAD)
    if (
        header_set(h, H_ROLLUP) or header_set(h, H_EXPECTED_STREAM) or header_set(h, H_EXPECTED_LAST_MSG_ID)
        or header_set(h, H_EXPECTED_LAST_SUBJ_SEQ_SUBJ) or header_set(h, H_EXPECTED_LAST_SEQ)
        or header_set(h, H_EXPECTED_LAST_SUBJ_SEQ)
    ):
        return refuse(r, ERR_INCR_INVALID)
    return True


def probe_sum(bytes a not None, bytes b not None) -> bytes | None:
    """Add two decimal numbers; None when one of them is malformed (for tests)."""
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
