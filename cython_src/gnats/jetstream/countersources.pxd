"""Nats-Counter-Sources: the last value that a counter has had of each subject of each stream it adds up (ADR-49).

JSON, {"stream": {"subject": "value"}}, as encoding/json reads and writes a map[string]map[string]string: in order, and
of several members with one name the last one counts.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.slice cimport Slice


# Of one subject; or that a stream has none (subject.p is NULL), `null` or `{}`.
cdef struct SourceEntry:
    Slice stream, subject, value
    uint32_t member      # which of the members for streams it is in
    uint32_t order
    bint null


cdef struct CounterSources:
    SourceEntry *list
    size_t n, room
    uint32_t members
    char *text           # what is not as it was written, unescaped
    size_t used


cdef enum SourcesError:
    SOURCES_OK = 0
    SOURCES_BAD = -1     # not such a map
    SOURCES_NO_MEMORY = -2


# An int, SourcesError. In any case sources_free() it; p[:n] is used until then.
cdef int sources_read(CounterSources *s, const char *p, size_t n) noexcept nogil
# Set a value; what it was before, n 0 for none. False when out of memory.
cdef bint sources_set(CounterSources *s, const Slice *stream, const Slice *subject, const Slice *value,
                      Slice *before) noexcept nogil
cdef size_t sources_room(const CounterSources *s) noexcept nogil
# The bytes, sources_room() at most; 0 when there is nothing.
cdef size_t sources_put(CounterSources *s, char *out) noexcept nogil
cdef void sources_free(CounterSources *s) noexcept nogil
