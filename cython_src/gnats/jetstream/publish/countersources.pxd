"""Nats-Counter-Sources: in a counter that sums up others, the last value of each subject of each origin (ADR-49).

JSON, {"stream": {"subject": "value"}}, parsed and written as encoding/json does a map[string]map[string]string: sorted;
the last of several members with one name counts.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.runtime.slice cimport Slice


# The value of one subject. A stream without subjects (`null` or `{}`) has an entry whose subject.p is NULL.
cdef struct SourceEntry:
    Slice stream, subject, value
    uint32_t member      # index of the stream's member in the JSON object
    uint32_t order       # index of this entry
    bint null            # the stream's member is null


cdef struct CounterSources:
    SourceEntry *list
    size_t n, room
    uint32_t members
    char *text           # unescaped strings
    size_t used          # bytes of text in use


cdef enum SourcesError:
    SOURCES_OK = 0
    SOURCES_BAD = -1     # malformed
    SOURCES_NO_MEMORY = -2


# Parse p[:n], which must stay valid until sources_free(). Return a SourcesError. Call sources_free() in any case.
cdef int sources_read(CounterSources *s, const char *p, size_t n) noexcept nogil
# Set a value. before: the old value, n 0 for none. False when out of memory.
cdef bint sources_set(CounterSources *s, const Slice *stream, const Slice *subject, const Slice *value,
                      Slice *before) noexcept nogil
cdef size_t sources_room(const CounterSources *s) noexcept nogil
# Write the JSON, sources_room() bytes at most. Return its length; 0 when there are no sources.
cdef size_t sources_put(CounterSources *s, char *out) noexcept nogil
cdef void sources_free(CounterSources *s) noexcept nogil
