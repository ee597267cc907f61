"""Messages in flight: checked, to be stored before the one that is being checked, but not stored yet.

They are the messages before it in its atomic batch. A message is checked as if they were stored: their sequences,
subjects, ids and bytes count. Where a message is stored right after its check, none is in flight. A log that proposes
messages to other servers before they are stored will have those in flight as well; only this module will know.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.state.entry cimport Entry


# A message of an atomic batch. The struct, the header and the subject are one piece of memory.
cdef struct Staged:
    Staged *next
    Inbound m
    Entry entry
    uint32_t subject_hash
    uint32_t id_hash             # of its message id; 0: no id


# The messages from `first` up to, but without, `until`, which is the one being checked; both NULL: none.
cdef struct InFlight:
    const Staged *first
    const Staged *until
    uint64_t n                   # messages
    uint64_t bytes               # that they will use in the store


# Set the hashes of a staged message, after its subject was transformed.
cdef void stage_hashes(Staged *staged) noexcept nogil
# The number of messages in flight with a subject, and the last of them where `last` is not NULL (NULL for none).
# f may be NULL here and below.
cdef uint64_t in_flight_of(const InFlight *f, const char *subject, size_t n, const Inbound **last) noexcept nogil
cdef bint has_id_in_flight(const InFlight *f, const Slice *id) noexcept nogil


cdef inline uint64_t number_in_flight(const InFlight *f) noexcept nogil:
    return f.n if f != NULL else 0
