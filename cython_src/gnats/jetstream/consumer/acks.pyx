"""Acknowledgements; see acks.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strlen

from gnats.core.messages.reserved cimport ACK_PREFIX
from gnats.includes.text cimport is_text, starts_with_text
from gnats.jetstream.engine.jsonreq cimport JSON_DURATION, JSON_OK, JsonError, JsonField, JsonValue, json_object
from gnats.store.times.durations cimport parse_duration

cdef enum:
    TOKENS_V1 = 9
    TOKENS_V2 = 11       # or more


cdef inline uint64_t parse_number(const char *p, size_t n) noexcept nogil:
    """Parse a number in decimal; 2**64 - 1 when it is invalid."""
    cdef uint64_t value = 0
    cdef size_t i
    if n == 0:
        return <uint64_t> -1
    for i in range(n):
        if not c'0' <= p[i] <= c'9':
            return <uint64_t> -1
        value = value * 10 + <uint64_t> (p[i] - c'0')
    return value


cdef bint ack_reply_info(const char *subject, size_t n, AckInfo *info) noexcept nogil:
    cdef size_t[TOKENS_V2 + 1] start       # of each token; one more, for the length of the last
    cdef size_t i, tokens = 1, first
    memset(info, 0, sizeof(AckInfo))
    if not starts_with_text(subject, n, ACK_PREFIX):
        return False
    start[0] = 0
    for i in range(n):
        if subject[i] == c'.':
            if tokens <= TOKENS_V2:
                start[tokens] = i + 1
            tokens += 1
    if tokens == TOKENS_V1:
        first = 4
    elif tokens >= TOKENS_V2:
        first = 6
    else:
        return False
    if tokens <= TOKENS_V2:
        start[tokens] = n + 1
    info.dc = parse_number(subject + start[first], start[first + 1] - start[first] - 1)
    info.sseq = parse_number(subject + start[first + 1], start[first + 2] - start[first + 1] - 1)
    info.dseq = parse_number(subject + start[first + 2], start[first + 3] - start[first + 2] - 1)
    info.ts = <int64_t> parse_number(subject + start[first + 3], start[first + 4] - start[first + 3] - 1)
    info.pending = parse_number(subject + start[first + 4], start[first + 5] - start[first + 4] - 1)
    return True


cdef char *put_uint(char *out, uint64_t value) noexcept nogil:
    cdef char[20] digits
    cdef size_t n = 0
    while True:
        n += 1
        digits[20 - n] = <char> (c'0' + value % 10)
        value //= 10
        if value == 0:
            break
    memcpy(out, digits + 20 - n, n)
    return out + n


cdef size_t ack_reply(char *out, const char *prefix, size_t n, const AckInfo *info) noexcept nogil:
    cdef char *p = out + n
    cdef int64_t ts = info.ts
    memcpy(out, prefix, n)
    p[0] = c'.'
    p = put_uint(p + 1, info.dc)
    p[0] = c'.'
    p = put_uint(p + 1, info.sseq)
    p[0] = c'.'
    p = put_uint(p + 1, info.dseq)
    p[0] = c'.'
    p += 1
    if ts < 0:
        p[0] = c'-'
        p = put_uint(p + 1, 0 - <uint64_t> ts)
    else:
        p = put_uint(p, <uint64_t> ts)
    p[0] = c'.'
    return put_uint(p + 1, info.pending) - out


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or 9 <= c <= 13


cdef const char *trim(const char *p, size_t *n) noexcept nogil:
    cdef size_t left = n[0]
    while left and is_blank(p[0]):
        p += 1
        left -= 1
    while left and is_blank(p[left - 1]):
        left -= 1
    n[0] = left
    return p


cdef inline bint skip_text(const char **p, size_t *n, const char *text) noexcept nogil:
    """Return whether the bytes begin with a literal; go behind it."""
    if not starts_with_text(p[0], n[0], text):
        return False
    p[0] += strlen(text)
    n[0] -= strlen(text)
    return True


cdef int parse_ack(const char *p, size_t n, const char **rest, size_t *rest_n) noexcept nogil:
    rest[0] = p
    rest_n[0] = 0
    if n == 0 or is_text(p, n, b"+ACK") or is_text(p, n, b"+OK"):
        return ACK_ACK
    if is_text(p, n, b"+WPI"):
        return ACK_PROGRESS
    rest_n[0] = n
    if skip_text(rest, rest_n, b"+NXT"):
        return ACK_NEXT
    if skip_text(rest, rest_n, b"-NAK"):
        return ACK_NAK
    if skip_text(rest, rest_n, b"+TERM"):
        return ACK_TERM
    rest_n[0] = 0
    return ACK_NOTHING


cdef bint nak_delay(const char *p, size_t n, int64_t *delay, bint *bad) noexcept nogil:
    cdef JsonField field
    cdef JsonValue value
    cdef JsonError err
    bad[0] = False
    delay[0] = 0
    p = trim(p, &n)
    if n == 0:
        return False
    if p[0] == c'{':
        field.name = b"delay"
        field.type = JSON_DURATION
        if json_object(p, n, &field, 1, &value, &err) != JSON_OK:
            bad[0] = True
            return False
        delay[0] = value.i
        return True
    bad[0] = not parse_duration(p, n, delay)
    return not bad[0]


# -- for tests ---------------------------------------------------------------------------------------------------------

def read_reply(bytes subject not None) -> tuple[int, int, int, int, int] | None:
    """Parse a reply subject: (stream seq, consumer seq, deliveries, ts, pending); None when it is not one."""
    cdef AckInfo info
    if not ack_reply_info(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject), &info):
        return None
    return info.sseq, info.dseq, info.dc, info.ts, info.pending


def write_reply(
    bytes prefix not None, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t ts, uint64_t pending
) -> bytes:
    """Make the reply subject with these numbers. Raises MemoryError."""
    cdef AckInfo info
    cdef char *out = <char *> malloc(PyBytes_GET_SIZE(prefix) + ACK_NUMBERS)
    if out == NULL:
        raise MemoryError
    info.sseq, info.dseq, info.dc, info.ts, info.pending = sseq, dseq, dc, ts, pending
    try:
        return PyBytes_FromStringAndSize(
            out, ack_reply(out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix), &info))
    finally:
        free(out)


def read_ack(bytes payload not None) -> tuple[str, bytes]:
    """Parse a payload: (kind, text behind the verb)."""
    cdef const char *rest
    cdef size_t n
    cdef int kind = parse_ack(PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), &rest, &n)
    cdef bytes behind = PyBytes_FromStringAndSize(rest, n) if n else b""
    return ("nothing", "ack", "next", "nak", "progress", "term")[kind], behind


def read_duration(bytes text not None) -> int | None:
    """Parse a duration in ns; None when it is invalid."""
    cdef int64_t ns
    return ns if parse_duration(PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text), &ns) else None


def read_nak(bytes rest not None) -> tuple[int | None, bool]:
    """Parse the text behind -NAK: (delay in ns or None, whether it is invalid)."""
    cdef int64_t delay
    cdef bint bad
    cdef bint some = nak_delay(PyBytes_AS_STRING(rest), PyBytes_GET_SIZE(rest), &delay, &bad)
    return delay if some else None, bool(bad)
