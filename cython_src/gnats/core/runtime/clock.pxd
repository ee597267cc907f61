"""The server's time: two clocks of the kernel, which a test can hold and move.

Every deadline and every time that is stored or shown comes from here. Durations of work (a turn's length, the cost of a
flush) come from gnats.includes.linux.stopwatch_ns, which cannot be held.

A held clock moves when a test moves it, and by 1 ns in each round of timers: a timer that is set in a round is due in a
later one. Timer descriptors know only the kernel's clock. So under a held clock they are set to fire at once when their
time has come, and not at all before; a test that moves the clock wakes every poller, which then looks.

There is one clock for the process. It is held and released only while no poller is open, so a poller never sees both
kinds of time.
"""
from libc.stdint cimport int64_t

from gnats.includes.atomics cimport addi64, loadi64, unlikely
from gnats.includes.linux cimport CLOCK_REALTIME, kernel_ns, stopwatch_ns


cdef struct Clock:
    int64_t held      # monotonic ns of a held clock; 0: read the kernel's. Atomic, a test and rounds of timers write
    int64_t offset    # ns from a held clock's monotonic time to its realtime; written before `held`
    int pollers       # open pollers; under the GIL
    int settled       # eventfd that a poller writes when nothing due is left, under a held clock; else -1


# The storage is core.runtime.clock's; each extension module that cimports it has a pointer to it.
cdef Clock process_clock


cdef inline bint clock_is_held() noexcept nogil:
    return loadi64(&process_clock.held) != 0


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef int64_t held = loadi64(&process_clock.held)
    if unlikely(held != 0):
        return held
    return stopwatch_ns()


cdef inline int64_t realtime_ns() noexcept nogil:
    """Return ns since 1970."""
    cdef int64_t held = loadi64(&process_clock.held)
    if unlikely(held != 0):
        return held + loadi64(&process_clock.offset)
    return kernel_ns(CLOCK_REALTIME)


cdef inline int64_t round_of_timers() noexcept nogil:
    """Return `now` for a round of timers, later than that of any round before."""
    if unlikely(clock_is_held()):
        return addi64(&process_clock.held, 1) + 1
    return stopwatch_ns()


# Return whether a deadline is due in the next round of timers, under a held clock. 0 is no deadline.
cdef inline bint held_due(int64_t when) noexcept nogil:
    return when != 0 and when <= loadi64(&process_clock.held) + 1


# Set a timerfd to be readable from `when` on, monotonic ns; 0 disarms it. -1 when the kernel refuses. armed[0] becomes
# the time that it is set to, 0 for none; atomic.
cdef int timerfd_arm(int fd, int64_t when, int64_t *armed) noexcept nogil
# Count a poller that is opened, or closed.
cdef void clock_join() noexcept
cdef void clock_leave() noexcept
# Note that a poller has nothing left that was due at the time of its round.
cdef void clock_settled() noexcept nogil
