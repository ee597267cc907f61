"""Messages in flight: checked, to be stored before the one that is being checked, but not stored yet.

They are the messages that the stream's log has and has not stored yet, and the messages before it in its atomic batch.
A message is checked as if they were stored: their sequences, subjects, ids and bytes count. A log that stores at once
has none in flight.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.state.entry cimport StreamEntry
from gnats.jetstream.state.streamcore cimport StreamCore


# A message of an atomic batch. The struct, the header and the subject are one piece of memory.
cdef struct Staged:
    Staged *next
    Inbound m
    StreamEntry entry
    uint32_t subject_hash
    uint32_t id_hash             # of its message id; 0: no id


# The messages of `earlier`, and then those from `first` up to, but without, `until`; both NULL: none.
cdef struct InFlight:
    const InFlight *earlier      # NULL: none
    const Staged *first
    const Staged *until
    uint64_t n                   # messages, those of `earlier` included
    uint64_t skipped             # sequences in flight that get no message; the same
    uint64_t bytes               # that they will use in the store; the same


# Set the hashes of a staged message, after its subject was transformed.
cdef void stage_hashes(Staged *staged) noexcept nogil
# Return the number of messages in flight with a subject. Get the last of them (NULL for none) where `last` is not NULL.
# f may be NULL here and below.
cdef uint64_t in_flight_of(const InFlight *f, const char *subject, size_t n, const Inbound **last) noexcept nogil
cdef bint has_id_in_flight(const InFlight *f, const Slice *id) noexcept nogil


cdef inline const InFlight *log_in_flight(StreamCore s) noexcept nogil:
    """Return the messages that the stream's log has and has not stored yet; NULL: it stores at once."""
    return <const InFlight *> s.in_flight


cdef inline void flight_begin(InFlight *f, const InFlight *earlier) noexcept nogil:
    """Set f to the messages of `earlier`, which may be NULL."""
    f.earlier = earlier
    f.first = f.until = NULL
    f.n = earlier.n if earlier != NULL else 0
    f.skipped = earlier.skipped if earlier != NULL else 0
    f.bytes = earlier.bytes if earlier != NULL else 0


cdef inline uint64_t number_in_flight(const InFlight *f) noexcept nogil:
    """Return the number of sequences."""
    return f.n + f.skipped if f != NULL else 0


cdef inline uint64_t last_in_flight(StreamCore s) noexcept nogil:
    """Return the stream's last sequence when what its log has is stored."""
    return s.store.last_seq + number_in_flight(log_in_flight(s))


cdef inline uint64_t bytes_in_flight(const InFlight *f) noexcept nogil:
    return f.bytes if f != NULL else 0
