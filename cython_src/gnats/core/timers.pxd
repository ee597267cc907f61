"""Timers: a binary heap of deadlines embedded in what they belong to, of a poller or of JetStream's engine.

No lock: a poller's are its own, the engine's are under a lock of its. A round is the calls of timer_expired with one
`now`. A timer that is set while a round lasts is due in a later one, whatever it is set to: so none keeps the others
from being called, however often it is set anew.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t


cdef struct Timer:
    int64_t when      # monotonic ns
    void *owner
    uint32_t kind     # for the owner
    uint32_t slot     # 1-based place in the heap, 0 when not armed


cdef struct TimerHeap:
    Timer **heap      # heap[0] is unused
    uint32_t n        # atomic, one writer
    int64_t first     # the earliest deadline, 0 for none; the same
    uint32_t reserved
    size_t cap
    int64_t turn      # `now` of the last round: nothing is set to that or earlier


cdef int timer_set(TimerHeap *h, Timer *t, int64_t when) noexcept nogil   # -1 when out of memory, unless reserved
# Room for n more timers than those that it was called for before, so that they can be set without memory; n below 0
# gives it back. -1 when out of memory.
cdef int timers_reserve(TimerHeap *h, int n) noexcept nogil
cdef void timer_clear(TimerHeap *h, Timer *t) noexcept nogil
cdef Timer *timer_expired(TimerHeap *h, int64_t now) noexcept nogil        # takes one that is due, or NULL
cdef void timers_free(TimerHeap *h) noexcept nogil


cdef inline int64_t timers_next(const TimerHeap *h) noexcept nogil:
    return h.first
