"""Nats-Counter-Sources; see countersources.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp, memset

from gnats.core.runtime.quoting cimport put_json_string
from gnats.core.runtime.slice cimport Slice
from gnats.includes.arrays cimport array_grow
from gnats.includes.text cimport is_text, put_text
from gnats.jetstream.engine.jsonreq cimport JSON_MORE, JSON_OK, JsonValue, json_member, json_unescape

cdef extern from * nogil:
    """
    #define GNATS_NULL "null"
    """
    const char *NULL_TEXT "GNATS_NULL"


cdef inline int compare_slices(const Slice *a, const Slice *b) noexcept nogil:
    cdef int order = memcmp(a.p, b.p, min(a.n, b.n))
    return order if order else (a.n > b.n) - (a.n < b.n)


cdef inline bint same(const Slice *a, const Slice *b) noexcept nogil:
    return a.n == b.n and memcmp(a.p, b.p, a.n) == 0


cdef Slice plain(CounterSources *s, const JsonValue *v) noexcept nogil:
    """Unescape a string into s.text."""
    cdef Slice out
    out.p = <char *> v.p
    out.n = v.n
    if v.n:
        out.p = s.text + s.used
        out.n = json_unescape(v.p, v.n, out.p)
        s.used += out.n
    return out


cdef SourceEntry *new_entry(CounterSources *s) noexcept nogil:
    cdef SourceEntry *e
    if s.n == s.room and not array_grow(&s.list, &s.room, 8, sizeof(SourceEntry)):
        return NULL
    e = &s.list[s.n]
    memset(e, 0, sizeof(SourceEntry))
    e.order = <uint32_t> s.n
    s.n += 1
    return e


cdef int read_stream(CounterSources *s, const Slice *stream, const JsonValue *value) noexcept nogil:
    """Read the subjects of a stream. Return a SourcesError."""
    cdef JsonValue name, v
    cdef SourceEntry *e = new_entry(s)
    cdef size_t at = 0
    cdef int more
    if e == NULL:
        return SOURCES_NO_MEMORY
    e.stream = stream[0]
    e.member = s.members
    e.null = not value.set
    if not value.set:
        return SOURCES_OK
    if value.i != c'{':
        return SOURCES_BAD
    while True:
        more = json_member(value.p, value.n, &at, &name, &v)
        if more != JSON_MORE:
            return SOURCES_OK if more == JSON_OK else SOURCES_BAD
        if v.set and v.i != c'"':
            return SOURCES_BAD
        e = new_entry(s)
        if e == NULL:
            return SOURCES_NO_MEMORY
        e.stream = stream[0]
        e.member = s.members
        e.subject = plain(s, &name)
        if v.set:
            e.value = plain(s, &v)


cdef bint is_null(const char *p, size_t n) noexcept nogil:
    while n and (p[0] == c' ' or p[0] == c'\t'):
        p += 1
        n -= 1
    while n and (p[n - 1] == c' ' or p[n - 1] == c'\t'):
        n -= 1
    return is_text(p, n, NULL_TEXT)


cdef int sources_read(CounterSources *s, const char *p, size_t n) noexcept nogil:
    cdef JsonValue name, value
    cdef Slice stream
    cdef size_t at = 0
    cdef int more, error
    memset(s, 0, sizeof(CounterSources))
    if n == 0 or is_null(p, n):
        return SOURCES_OK
    s.text = <char *> malloc(3 * n)
    if s.text == NULL:
        return SOURCES_NO_MEMORY
    while True:
        more = json_member(p, n, &at, &name, &value)
        if more != JSON_MORE:
            return SOURCES_OK if more == JSON_OK else SOURCES_BAD
        stream = plain(s, &name)
        s.members += 1
        error = read_stream(s, &stream, &value)
        if error != SOURCES_OK:
            return error


cdef bint sources_set(
    CounterSources *s, const Slice *stream, const Slice *subject, const Slice *value, Slice *before
) noexcept nogil:
    cdef uint32_t member = 0
    cdef SourceEntry *e
    cdef size_t i
    before.p = NULL
    before.n = 0
    for i in range(s.n):
        e = &s.list[i]
        if same(&e.stream, stream):
            if e.member != member:
                before.n = 0
            member = e.member
            if e.subject.p != NULL and same(&e.subject, subject):
                before[0] = e.value
    e = new_entry(s)
    if e == NULL:
        return False
    if member == 0:
        s.members += 1
        member = s.members
    e.stream = stream[0]
    e.subject = subject[0]
    e.value = value[0]
    e.member = member
    return True


cdef int compare(const void *x, const void *y) noexcept nogil:
    # By stream and subject. Of a stream's members the last comes first, of a subject's in it, too: these count.
    cdef const SourceEntry *a = <const SourceEntry *> x
    cdef const SourceEntry *b = <const SourceEntry *> y
    cdef int order = compare_slices(&a.stream, &b.stream)
    if order == 0 and a.member != b.member:
        return -1 if a.member > b.member else 1
    if order == 0 and (a.subject.p == NULL) != (b.subject.p == NULL):
        return -1 if a.subject.p == NULL else 1
    if order == 0 and a.subject.p != NULL:
        order = compare_slices(&a.subject, &b.subject)
    if order == 0:
        order = -1 if a.order > b.order else 1
    return order


cdef size_t sources_room(const CounterSources *s) noexcept nogil:
    cdef size_t i, room = 2
    for i in range(s.n):
        room += 6 * (s.list[i].stream.n + s.list[i].subject.n + s.list[i].value.n) + 16
    return room


cdef size_t put_stream(const SourceEntry *first, const SourceEntry *end, char *out) noexcept nogil:
    """Write the subjects of a stream, which are those of its last member; return their length."""
    cdef const SourceEntry *e = first
    cdef const SourceEntry *before = NULL
    cdef char *p = out
    p[0] = c'{'
    p += 1
    while e != end and e.member == first.member:
        if e.subject.p != NULL and (before == NULL or not same(&before.subject, &e.subject)):
            if before != NULL:
                p[0] = c','
                p += 1
            p += put_json_string(p, e.subject.p, e.subject.n)
            p[0] = c':'
            p += 1
            p += put_json_string(p, e.value.p, e.value.n)
            before = e
        e += 1
    if before == NULL and first.null:
        return put_text(out, NULL_TEXT) - out
    p[0] = c'}'
    return p + 1 - out


cdef size_t sources_put(CounterSources *s, char *out) noexcept nogil:
    cdef char *p = out
    cdef size_t i = 0, end
    if s.n == 0:
        return 0
    qsort(s.list, s.n, sizeof(SourceEntry), compare)
    while i < s.n:
        p[0] = c',' if i else c'{'
        p += 1
        p += put_json_string(p, s.list[i].stream.p, s.list[i].stream.n)
        p[0] = c':'
        p += 1
        end = i + 1
        while end < s.n and same(&s.list[end].stream, &s.list[i].stream):
            end += 1
        p += put_stream(&s.list[i], s.list + end, p)
        i = end
    p[0] = c'}'
    return p + 1 - out


cdef void sources_free(CounterSources *s) noexcept nogil:
    free(s.list)
    free(s.text)
    memset(s, 0, sizeof(CounterSources))


def probe_sources(bytes text not None, bytes stream=None, bytes subject=b"", bytes value=b"") -> tuple | None:
    """Parse the map, set a value if `stream` is given, and write it: (new text, value before); for tests.

    None for a malformed map.
    """
    cdef CounterSources s
    cdef Slice a, b, c, before
    cdef char *out = NULL
    cdef int error = sources_read(&s, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    before.n = 0
    try:
        if error == SOURCES_BAD:
            return None
        if error != SOURCES_OK:
            raise MemoryError
        if stream is not None:
            a.p = PyBytes_AS_STRING(stream)
            a.n = PyBytes_GET_SIZE(stream)
            b.p = PyBytes_AS_STRING(subject)
            b.n = PyBytes_GET_SIZE(subject)
            c.p = PyBytes_AS_STRING(value)
            c.n = PyBytes_GET_SIZE(value)
            if not sources_set(&s, &a, &b, &c, &before):
                raise MemoryError
        was = before.p[:before.n] if before.n else b""
        out = <char *> malloc(sources_room(&s))
        if out == NULL:
            raise MemoryError
        return out[:sources_put(&s, out)], was
    finally:
        free(out)
        sources_free(&s)
