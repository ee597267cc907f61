"""Messages that come before one that is checked, and are not stored yet: those before it in its atomic batch.

Every message is checked as if they were stored: the sequence that it will have, the last message of a subject and how
many there are of it, ids, what all of them take. Nothing is in flight where a message is stored as soon as it is
checked. Who proposes messages to others before it stores them has those here as well; only these functions know.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.slice cimport Slice
from gnats.jetstream.entry cimport Entry
from gnats.jetstream.inbound cimport Inbound


# A message of a batch: it, its header and its subject in one piece of memory.
cdef struct Staged:
    Staged *next
    Inbound m
    Entry entry
    uint32_t subject_hash
    uint32_t id_hash             # of its message id, 0 without one


# From `first` up to `until`, the message itself; both NULL without any.
cdef struct InFlight:
    const Staged *first
    const Staged *until
    uint64_t n
    uint64_t bytes               # of them in the store


# Hash what they are found by, when they have their subjects.
cdef void stage_hashes(Staged *staged) noexcept nogil
# How many there are of a subject, and the last of them, NULL without any; f may be NULL.
cdef uint64_t in_flight_of(const InFlight *f, const char *subject, size_t n) noexcept nogil
cdef const Inbound *last_in_flight(const InFlight *f, const char *subject, size_t n) noexcept nogil
cdef bint has_id_in_flight(const InFlight *f, const Slice *id) noexcept nogil


cdef inline uint64_t number_in_flight(const InFlight *f) noexcept nogil:
    return f.n if f != NULL else 0
