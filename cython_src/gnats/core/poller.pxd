"""A poller: an epoll set and the connections in it.

It runs in one of two ways: the control loop watches fileno() and calls run_once when it is readable, or run() has a
thread of its own. Its lock (PollState.lock) guards the list of signalled connections (docs/locks.md).
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollerBase


cdef class Poller(PollerBase):
    cdef uint8_t stopping     # atomic
    cdef int closed
    cdef bint lingers         # it may look for events without sleeping: there is more than one core
    cdef uint32_t short_waits  # waits in a row that were short, at most STREAK
    cdef int64_t left         # stopwatch ns when run_once returned
    cdef int64_t woke         # monotonic ns when the last wait ended
    cdef uint64_t lingered    # times that linger() found an event; atomic, the owner writes

    cdef bint joined          # counted as a reader of the clock
    cdef int64_t settled      # under a held clock: the last time at which nothing due was left; atomic
    cdef int64_t departures_ns  # ns that departures took at the end of the last remove_closed_subs

    # Run one round: wait for events, handle them, end the batch. Return the number of events, or -errno.
    cdef int once(self, int timeout_ms) noexcept nogil
    cdef int linger(self) noexcept nogil
    # Count a wait of so many ns as short or long.
    cdef void waited(self, int64_t ns) noexcept nogil
    # Have the connections that wait for a turn handle more of what they have read, up to the connection `last`, which
    # was the last one in the queue when the round began.
    cdef void give_turns(self, void *last) noexcept nogil
    cdef void drain_signals(self) noexcept nogil
    cdef void expire_timers(self) noexcept nogil
    # Under a held clock: when nothing due at this time is left, note that.
    cdef void settle(self) noexcept nogil
    # Remove subscriptions of closed connections, for about REMOVING ns.
    cdef void remove_closed_subs(self) noexcept nogil
