"""Nats-Counter-Sources: for a counter that adds up others, the last value of each subject of each stream (ADR-49).

JSON, {"stream": {"subject": "value"}}, parsed and written as encoding/json does a map[string]map[string]string: sorted;
the last of several members with one name counts.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.runtime.slice cimport Slice


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


# Parse p[:n], which must stay valid until sources_free(). Returns a SourcesError. Call sources_free() in any case.
cdef int sources_read(CounterSources *s, const char *p, size_t n) noexcept nogil
# Set a value. before: the old value, n 0 for none. False when out of memory.
cdef bint sources_set(CounterSources *s, const Slice *stream, const Slice *subject, const Slice *value,
                      Slice *before) noexcept nogil
cdef size_t sources_room(const CounterSources *s) noexcept nogil
# Write the JSON, sources_room() bytes at most. Returns its length; 0 when there are no sources.
cdef size_t sources_put(CounterSources *s, char *out) noexcept nogil
cdef void sources_free(CounterSources *s) noexcept nogil
