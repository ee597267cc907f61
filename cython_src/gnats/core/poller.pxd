"""A poller: an epoll set and the connections in it.

The same object runs in either of two ways: watched by the control loop, which calls run_once when fileno() is
readable, or in a thread of its own. Its lock (PollState.lock) guards the list of signalled connections (docs/locks.md).
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.pollstate cimport PollerBase


cdef class Poller(PollerBase):
    cdef uint8_t stopping     # atomic
    cdef int closed
    cdef bint lingers         # before it sleeps, where the waits before were short
    cdef uint32_t short_waits  # in a row
    cdef int64_t left         # monotonic ns when run_once returned
    cdef uint64_t lingered    # times that something came meanwhile; atomic

    cdef bint joined          # it counts as a reader of the clock
    cdef int64_t settled      # under a held clock: a time at which nothing was left to do; atomic
    cdef int64_t settling     # ns that departures took at the end of the last remove_closed_subs

    cdef int once(self, int timeout_ms) noexcept nogil
    cdef int linger(self) noexcept nogil
    cdef void waited(self, int64_t ns) noexcept nogil
    cdef void drain_signals(self) noexcept nogil
    cdef void expire_timers(self) noexcept nogil
    # Say that what was due at this round's time is done, if it is; under a held clock.
    cdef void settle(self) noexcept nogil
    # Take subscriptions of closed connections out of their sublists, for a moment.
    cdef void remove_closed_subs(self) noexcept nogil
