"""A binary heap of deadlines; see timers.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport calloc, free

from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport bump32, storei64
from gnats.includes.times cimport duration_of, time_after, time_before, whole_seconds


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


cdef int timers_reserve(TimerHeap *h, int n) noexcept nogil:
    while n > 0 and h.reserved + <size_t> n >= h.cap:
        if not array_grow(&h.heap, &h.cap, 64, sizeof(Timer *)):
            return -1
    h.reserved += <uint32_t> n
    return 0


cdef int timer_set(TimerHeap *h, Timer *t, int64_t when) noexcept nogil:
    cdef int64_t before
    if when <= h.last_round:
        when = h.last_round + 1
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
    if now > h.last_round:
        h.last_round = now
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


# -- for tests ---------------------------------------------------------------------------------------------------------

def probe_times(int64_t t, int64_t d) -> tuple[int, int, int]:
    """Return t + d, t - d, and t seconds in ns."""
    return time_after(t, d), time_before(t, d), whole_seconds(t)


def probe_duration(double secs) -> int:
    """Return seconds in ns."""
    return duration_of(secs)


cdef class TimersProbe:
    """A heap of its own, with a number for each timer."""
    cdef TimerHeap h
    cdef Timer *timers
    cdef uint32_t room

    def __cinit__(self, uint32_t room):
        cdef uint32_t i
        self.timers = <Timer *> calloc(room, sizeof(Timer))
        if self.timers == NULL:
            raise MemoryError
        self.room = room
        for i in range(room):
            self.timers[i].kind = i

    def __dealloc__(self):
        timers_free(&self.h)
        free(self.timers)

    def __len__(self) -> int:
        return self.h.n

    cdef Timer *at(self, uint32_t i) except NULL:
        if i >= self.room:
            raise IndexError(i)
        return &self.timers[i]

    def reserve(self, int n) -> None:
        """Raises MemoryError."""
        if timers_reserve(&self.h, n) != 0:
            raise MemoryError

    @property
    def capacity(self) -> int:
        """Timers that can be set without memory."""
        return max(self.h.cap, 1) - 1

    def set(self, uint32_t i, int64_t when) -> None:
        """Raises MemoryError."""
        if timer_set(&self.h, self.at(i), when) != 0:
            raise MemoryError

    def clear(self, uint32_t i) -> None:
        timer_clear(&self.h, self.at(i))

    def expired(self, int64_t now) -> int | None:
        """Remove and return one that is due, None when none is."""
        cdef Timer *t = timer_expired(&self.h, now)
        return t.kind if t != NULL else None

    @property
    def next(self) -> int:
        """The first deadline, 0 without one."""
        return timers_next(&self.h)
