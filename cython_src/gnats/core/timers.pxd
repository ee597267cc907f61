"""Timers of one poller: a binary heap of deadlines embedded in what they belong to. Only the owner touches it."""
from libc.stddef cimport size_t
from libc.stdint cimport INT64_MAX, int64_t, uint32_t


cdef struct Timer:
    int64_t when      # monotonic ns
    void *owner
    uint32_t kind     # for the owner
    uint32_t slot     # 1-based place in the heap, 0 when not armed


cdef struct TimerHeap:
    Timer **heap      # heap[0] is unused
    uint32_t n        # atomic, one writer
    size_t cap


cdef int timer_set(TimerHeap *h, Timer *t, int64_t when) noexcept nogil   # -1 when out of memory
cdef void timer_clear(TimerHeap *h, Timer *t) noexcept nogil
cdef Timer *timer_expired(TimerHeap *h, int64_t now) noexcept nogil        # takes one that is due, or NULL
cdef void timers_free(TimerHeap *h) noexcept nogil


cdef inline int64_t deadline(int64_t now, int64_t wait) noexcept nogil:
    """`wait` ns from now, at most the end of time."""
    return now + wait if wait < INT64_MAX - now else INT64_MAX


cdef inline int64_t timers_next(const TimerHeap *h) noexcept nogil:
    return h.heap[1].when if h.n else 0
