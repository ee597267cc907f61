"""What JetStream adds to the pollers of a server: work at the end of their batches, and timers.

A poller's batch may store messages in streams. What follows from that waits for its end, where `js_hook` has each
stream that took something write once, sends what waited for no more than that (gnats.jetstream.barrier), and runs the
consumers that have something to deliver.

Lock: `Engine.timer_lock` over the heap of timers, a leaf (docs/locks.md). Everything of a Local is its poller's, but
for what comes back from the sync thread.
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.core.inbox cimport Source
from gnats.core.pollstate cimport PollState
from gnats.core.state cimport MAX_POLLERS
from gnats.core.timers cimport Timer, TimerHeap
from gnats.includes.pthread cimport pthread_mutex_t
from gnats.jetstream.barrier cimport GroupCommit, Local
from gnats.jetstream.turns cimport Work


# A deadline. `fn` is called in the control loop's thread, which is online, with no lock held; it may arm it again.
cdef struct JsTimer:
    Timer timer          # timer.owner is for fn; set before it is armed
    void (*fn)(void *owner, PollState *ps) noexcept nogil


cdef class Engine:
    """One server's JetStream: see the module."""
    cdef GroupCommit commit
    cdef pthread_mutex_t timer_lock
    cdef TimerHeap timers          # under timer_lock, as is armed
    cdef int64_t armed
    cdef int tmfd
    cdef Local *locals[MAX_POLLERS]    # by poller; set before the first stream
    cdef PollState *control        # the control loop's poller
    cdef readonly list pollers     # the control loop's first
    cdef readonly object state     # ServerState
    cdef list clients, graveyard
    cdef bint closed

    cdef uint64_t rounds           # of timers; atomic, the control loop's
    # Room for n more timers, n below 0 gives it back: whoever has timers reserves it before it arms the first.
    # False when out of memory.
    cdef bint reserve(self, int n) noexcept nogil
    # Any thread. Sets the deadline, monotonic ns; 0 disarms. What is due already is called soon, after what was due
    # before. A timer that is disarmed by another thread than the control loop's may just be being called.
    cdef void arm(self, JsTimer *t, int64_t when) noexcept nogil
    cdef void expire(self) noexcept nogil


# Have a step of `w` done whenever it has its turn; `causer` has asked for it. False: it has asked for too much.
cdef bint take_turns(Local *local, Work *w, Source *causer) noexcept nogil
