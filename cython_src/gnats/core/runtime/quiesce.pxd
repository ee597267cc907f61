"""Free memory that a poller may still be reading: quiescent-state reclamation, one domain for the process.

A poller is online during a batch and offline while it waits. Memory that was unlinked is *retired* with a grace number.
Once every participant has been offline, or come online again, since that number was given out, no participant can hold
a pointer to the memory, and it is freed. The hot path counts no references.

Lock: one mutex over the lists of participants and of retired blocks (docs/locks.md).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t


cdef struct QsParticipant:
    uint64_t seen          # grace number when it came online, 0 while offline; atomic
    QsParticipant *next    # under the domain's lock


# Add and remove a participant; it begins offline.
cdef void qs_register(QsParticipant *participant) noexcept nogil
cdef void qs_unregister(QsParticipant *participant) noexcept nogil
# Begin and end a batch. In between, pointers read from shared structures stay valid.
cdef void qs_online(QsParticipant *participant) noexcept nogil
cdef void qs_offline(QsParticipant *participant) noexcept nogil
# free(block) once no participant can hold a pointer to it. The caller has unlinked it.
cdef void qs_retire(void *block) noexcept nogil
# As qs_retire, with release(block, size) instead of free, for a mapping for instance. release runs in any thread, with
# this domain's lock held.
cdef void qs_retire_with(void *block, size_t size, void (*release)(void *, size_t) noexcept nogil) noexcept nogil
# Return a grace number: it has passed once every participant that is online now has been offline.
cdef uint64_t qs_advance() noexcept nogil
cdef bint qs_passed(uint64_t number) noexcept nogil   # has this grace number passed?
# Free the blocks that have become safe. Cheap when there are none.
cdef void qs_reclaim() noexcept nogil
