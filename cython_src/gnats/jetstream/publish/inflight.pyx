"""Messages in flight; see inflight.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp

from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport hash_bytes
from gnats.includes.atomics cimport unlikely
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.state.headers cimport H_MSG_ID, header_set


cdef inline uint32_t hash_of_id(const Slice *id) noexcept nogil:
    """Return the hash of a message id, never 0: Staged.id_hash has 0 for no id."""
    return hash_bytes(id.p, id.n) | 1


cdef void stage_hashes(Staged *staged) noexcept nogil:
    staged.subject_hash = hash_bytes(staged.m.subject.p, staged.m.subject.n)
    if header_set(&staged.m.h, H_MSG_ID):
        staged.id_hash = hash_of_id(&staged.m.h.values[H_MSG_ID])


cdef uint64_t in_flight_of(const InFlight *f, const char *subject, size_t n, const Inbound **last) noexcept nogil:
    cdef const Staged *at
    cdef uint64_t found = 0
    cdef uint32_t hash
    if last != NULL:
        last[0] = NULL
    if f == NULL:
        return 0
    if unlikely(f.earlier != NULL):
        found = in_flight_of(f.earlier, subject, n, last)
    if f.first == f.until:
        return found
    hash = hash_bytes(subject, n)
    at = f.first
    while at != f.until:
        if at.subject_hash == hash and at.m.subject.n == n and memcmp(at.m.subject.p, subject, n) == 0:
            found += 1
            if last != NULL:
                last[0] = &at.m
        at = at.next
    return found


cdef bint has_id_in_flight(const InFlight *f, const Slice *id) noexcept nogil:
    cdef const Staged *at
    cdef uint32_t hash
    if f == NULL:
        return False
    if unlikely(f.earlier != NULL) and has_id_in_flight(f.earlier, id):
        return True
    if f.first == f.until:
        return False
    hash = hash_of_id(id)
    at = f.first
    while at != f.until:
        if at.id_hash == hash and at.m.h.values[H_MSG_ID].n == id.n and (
                memcmp(at.m.h.values[H_MSG_ID].p, id.p, id.n) == 0):
            return True
        at = at.next
    return False
