"""The consumers of a stream, by what they filter (cList and csl of stream.go).

A few are in an array that everybody walks. More of them are in a sublist, with a subscription for each of their
filters, so that a message costs what the consumers cost that want it, however many others there are.

Lock: changes are the control loop's, made under the lock of the stream's store. Whoever holds that walks without any
other; a thread that is online may walk without it, and sees each consumer that was there all the time, but perhaps one
that is just being added or removed, or by the filter it had before.
"""
from libc.stdint cimport uint32_t, uint64_t

from gnats.core.sublist cimport MatchResult, Sublist
from gnats.includes.atomics cimport load_ptr_acquire
from gnats.jetstream.barrier cimport Local, StreamBase
from gnats.jetstream.observer cimport Observer
from gnats.store.filter cimport Filter
from gnats.store.store cimport MsgStore

cdef enum:
    FEW_OBSERVERS = 8


# What readers begin with. Never changed: it is replaced, and retired.
cdef struct Observers:
    uint32_t n
    void *index                      # the Sublist where they are instead, borrowed; NULL
    void *few[FEW_OBSERVERS]         # borrowed Observers


cdef enum Concern:
    WITH_SUBJECT                     # those that want messages of a subject, and perhaps others
    WITH_SUBJECTS                    # the same of a subject with wildcards; one with many filters may come many times
    WITH_EVERYTHING                  # all


# Consumers that were looked up.
cdef struct Concerned:
    uint32_t n
    const Observers *few             # of them, or
    MatchResult *found               # of it, to be freed by concerned_free()


cdef class ConsumerList:
    cdef MsgStore store
    cdef dict members                # Observer: None, oldest first; the control loop's
    cdef Sublist index               # None until there are more than a few
    cdef Observers *observers        # atomic; NULL: there are none

    # -- the control loop --
    cdef int add(self, Observer o) except -1
    cdef int remove(self, Observer o) except -1
    cdef int clear(self) except -1
    # o.filter is `f` from now on, whether it is in the list or not; what it was is the caller's.
    cdef int refilter(self, Observer o, Filter *f) except -1
    cdef int publish(self, Observers *made) except -1
    cdef int add_to_index(self, list joining) except -1
    # -- the store's lock is held --
    # A message has been stored: have those count it that want it, and run that would deliver it, when it
    # may be seen.
    cdef void stored(self, Local *local, StreamBase stream, uint64_t seq, const char *subject,
                     uint32_t n) noexcept nogil
    cdef bint has_interest(self, const char *subject, uint32_t n) noexcept nogil
    # -- the thread is online --
    # False when out of memory.
    cdef bint look_up(self, Concern concern, const char *subject, uint32_t n, Concerned *c) noexcept nogil


cdef inline bint is_watched(ConsumerList l) noexcept nogil:
    """Are there any?"""
    return load_ptr_acquire(<void **> &l.observers) != NULL


cdef inline void *concerned_at(const Concerned *c, uint32_t i) noexcept nogil:
    """A borrowed Observer."""
    return c.few.few[i] if c.few != NULL else c.found.psubs[i].client


cdef void concerned_free(Concerned *c) noexcept nogil
