"""A poller: an epoll set and the connections in it.

The same object runs in either of two ways: watched by the control loop, which calls run_once when fileno() is
readable, or in a thread of its own. Its lock (PollState.lock) guards the list of signalled connections (docs/locks.md).
"""
from libc.stdint cimport uint8_t

from gnats.core.pollstate cimport PollerBase


cdef class Poller(PollerBase):
    cdef uint8_t stopping     # atomic
    cdef int closed

    cdef int once(self, int timeout_ms) noexcept nogil
    cdef void drain_signals(self) noexcept nogil
    cdef void expire_timers(self) noexcept nogil
