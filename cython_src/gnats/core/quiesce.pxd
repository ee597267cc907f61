"""Freeing what a poller may still be reading: quiescent-state reclamation, one domain for the process.

A poller is online while it works through a batch and offline while it waits. Memory that was unlinked is *retired*
with a number, the grace number; once every participant has been offline, or come online again, after that number
was given out, nobody can hold a pointer to it and it is freed. Nothing is counted on the hot path.

Lock: one mutex over the list of participants and of retired blocks; a leaf in docs/locks.md.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t


cdef struct QsParticipant:
    uint64_t seen          # grace number read when it came online, 0 while offline; atomic
    QsParticipant *next    # under the domain's lock


cdef void qs_register(QsParticipant *who) noexcept nogil
cdef void qs_unregister(QsParticipant *who) noexcept nogil
# Around a batch. Between the two, pointers read from shared structures stay valid.
cdef void qs_online(QsParticipant *who) noexcept nogil
cdef void qs_offline(QsParticipant *who) noexcept nogil
# free(block) once it is safe. The caller has made it unreachable before.
cdef void qs_retire(void *block) noexcept nogil
# release(block, size) once it is safe: for what free() is not the way to give back, a mapping for instance. release
# runs with this domain's lock held, in any thread.
cdef void qs_retire_with(void *block, size_t size, void (*release)(void *, size_t) noexcept nogil) noexcept nogil
# A number that has passed once everybody online now has been offline.
cdef uint64_t qs_advance() noexcept nogil
cdef bint qs_passed(uint64_t number) noexcept nogil
# Free what has become safe. Cheap when there is nothing.
cdef void qs_reclaim() noexcept nogil
