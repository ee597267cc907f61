"""Timers of a poller or of JetStream's engine: a binary heap of deadlines, which are part of their owners.

No lock of its own: a poller's heap is its own, the engine guards its heap with a lock. A *round* is the calls of
timer_expired with one `now`. A timer that is set during a round is due in a later one, however early its deadline. So
no timer keeps others from expiring by being set again and again.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t


cdef struct Timer:
    int64_t when      # monotonic ns
    void *owner       # borrowed
    uint32_t kind     # the owner's number for it
    uint32_t slot     # index in the heap, 0 when not armed


cdef struct TimerHeap:
    Timer **heap      # heap[0] is unused
    uint32_t n        # armed timers; atomic, one writer
    int64_t first     # the earliest deadline, 0 for none; atomic, one writer
    uint32_t reserved  # timers that can be set without memory, by timers_reserve
    size_t cap
    int64_t last_round  # `now` of the last round; no deadline is set at or before it


cdef int timer_set(TimerHeap *h, Timer *t, int64_t when) noexcept nogil   # -1 when out of memory, unless reserved
# Reserve room for n more timers, so that they can be set without memory; n < 0 gives it back. -1 when out of memory.
cdef int timers_reserve(TimerHeap *h, int n) noexcept nogil
cdef void timer_clear(TimerHeap *h, Timer *t) noexcept nogil
cdef Timer *timer_expired(TimerHeap *h, int64_t now) noexcept nogil        # removes one that is due; NULL: none
cdef void timers_free(TimerHeap *h) noexcept nogil


cdef inline int64_t timers_next(const TimerHeap *h) noexcept nogil:
    return h.first
