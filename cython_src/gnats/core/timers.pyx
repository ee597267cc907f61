"""A binary heap of deadlines; see timers.pxd."""
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free

from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport bump32, storei64


cdef void sift_up(TimerHeap *h, uint32_t i, Timer *t) noexcept nogil:
    while i > 1 and h.heap[i >> 1].when > t.when:
        h.heap[i] = h.heap[i >> 1]
        h.heap[i].slot = i
        i >>= 1
    h.heap[i] = t
    t.slot = i


cdef void sift_down(TimerHeap *h, uint32_t i, Timer *t) noexcept nogil:
    cdef uint32_t child
    while True:
        child = i << 1
        if child > h.n:
            break
        if child < h.n and h.heap[child + 1].when < h.heap[child].when:
            child += 1
        if t.when <= h.heap[child].when:
            break
        h.heap[i] = h.heap[child]
        h.heap[i].slot = i
        i = child
    h.heap[i] = t
    t.slot = i


cdef int timer_set(TimerHeap *h, Timer *t, int64_t when) noexcept nogil:
    cdef int64_t before
    if t.slot:
        before = t.when
        t.when = when
        if when < before:
            sift_up(h, t.slot, t)
        else:
            sift_down(h, t.slot, t)
        storei64(&h.first, h.heap[1].when)
        return 0
    if h.n + 1 >= h.cap and not array_grow(&h.heap, &h.cap, 64, sizeof(Timer *)):
        return -1
    t.when = when
    bump32(&h.n, 1)
    sift_up(h, h.n, t)
    storei64(&h.first, h.heap[1].when)
    return 0


cdef void timer_clear(TimerHeap *h, Timer *t) noexcept nogil:
    cdef uint32_t slot = t.slot
    cdef Timer *last
    if slot == 0:
        return
    t.slot = 0
    last = h.heap[h.n]
    bump32(&h.n, <uint32_t> -1)
    if last != t:
        if slot > 1 and h.heap[slot >> 1].when > last.when:
            sift_up(h, slot, last)
        else:
            sift_down(h, slot, last)
    storei64(&h.first, h.heap[1].when if h.n else 0)


cdef Timer *timer_expired(TimerHeap *h, int64_t now) noexcept nogil:
    cdef Timer *t
    if h.n == 0 or h.heap[1].when > now:
        return NULL
    t = h.heap[1]
    timer_clear(h, t)
    return t


cdef void timers_free(TimerHeap *h) noexcept nogil:
    free(h.heap)
    h.heap = NULL
    h.n = h.cap = 0
    h.first = 0
