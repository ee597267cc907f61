"""The consumers of a stream, found by their filters (cList and csl of stream.go).

A few consumers are in an array, which each look-up walks. More of them are in a sublist, with a subscription for each
filter, so that a message costs only the consumers that want it.

Lock: the control loop makes changes, under the lock of the stream's store. A thread that holds this lock walks the list
without any other. An online thread may walk it without a lock: it sees every consumer that is in the list all the time.
One that is being added or removed it may see or not, and a changed filter it may see as it was before.
"""
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.subjects.sublist cimport MatchResult, Sublist
from gnats.includes.atomics cimport load_ptr_acquire
from gnats.jetstream.engine.barrier cimport JsPoller, StreamBase
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.store.index.filter cimport Filter
from gnats.store.store cimport MsgStore

cdef enum:
    FEW_CONSUMERS = 8


# The root that readers load. It is never changed: a change replaces and retires it.
cdef struct ConsumerRoot:
    uint32_t n
    void *index                      # borrowed Sublist that has the consumers; NULL: they are in `few`
    void *few[FEW_CONSUMERS]         # borrowed ConsumerBase


# Which consumers to look up. The result may include others.
cdef enum Concern:
    WITH_SUBJECT                     # those that want messages of a literal subject
    WITH_SUBJECTS                    # those with a filter that overlaps a subject with wildcards; some several times
    WITH_EVERYTHING                  # all


# Consumers that were looked up: in `few`, or else in `found`.
cdef struct Concerned:
    uint32_t n
    const ConsumerRoot *few
    MatchResult *found               # freed by concerned_free()


cdef class ConsumerList:
    cdef MsgStore store
    cdef dict members                # ConsumerBase: None, oldest first; of the control loop alone
    cdef Sublist index               # None until there are more than FEW_CONSUMERS
    cdef ConsumerRoot *root          # atomic: the control loop writes, all threads read; NULL: no consumers

    # -- the control loop; raises MemoryError --
    # Add, remove or change one consumer; unchanged after MemoryError. Removing an absent one does nothing.
    cdef int add(self, ConsumerBase o) except -1
    cdef int remove(self, ConsumerBase o) except -1
    # Remove all consumers. Allocates nothing.
    cdef int clear(self) except -1
    cdef void unlist(self, ConsumerBase o) noexcept
    # Set o.filter, whether `o` is in the list or not. The caller frees the old filter.
    cdef int refilter(self, ConsumerBase o, Filter *f) except -1
    # Replace the root, under the store's lock, and retire the old one.
    cdef int publish(self, ConsumerRoot *made) except -1
    cdef int add_to_index(self, list joining) except -1
    # -- the store's lock is held, and there are consumers --
    # Have each consumer that wants a newly stored message count it, and run at the end of the batch if it would
    # deliver it, once the message may be seen.
    cdef void stored(self, JsPoller *jp, StreamBase stream, uint64_t seq, const char *subject,
                     uint32_t n) noexcept nogil
    # Have each consumer that wants a message count it off, before it is removed. True: one of them may have it pending.
    cdef bint count_off(self, uint64_t seq, const char *subject, uint32_t n) noexcept nogil
    # -- the store's lock is held --
    # Return whether any consumer has a filter that the subject passes.
    cdef bint has_interest(self, const char *subject, uint32_t n) noexcept nogil
    # -- the thread is online --
    # Find consumers; the caller calls concerned_free(). False when out of memory.
    cdef bint look_up(self, Concern concern, const char *subject, uint32_t n, Concerned *c) noexcept nogil


cdef inline bint has_consumers(ConsumerList l) noexcept nogil:
    """Return whether the stream has consumers."""
    return load_ptr_acquire(<void **> &l.root) != NULL


cdef inline void *concerned_at(const Concerned *c, uint32_t i) noexcept nogil:
    """Return a borrowed ConsumerBase."""
    return c.few.few[i] if c.few != NULL else c.found.psubs[i].client


cdef void concerned_free(Concerned *c) noexcept nogil
