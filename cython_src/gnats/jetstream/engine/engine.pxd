"""JetStream's part of a server's pollers: the work at the end of each batch, and timers.

A poller's batch may store messages in streams. At its end, `js_hook` flushes each of these streams once, sends the
answers that waited for that (gnats.jetstream.engine.barrier), and runs the consumers that have messages to deliver.

Lock: `Engine.timer_lock`, a leaf (docs/locks.md), guards the heap of timers. A JsPoller belongs to its poller, except
the SyncBatches that come back from the sync thread.
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.inbox cimport Source
from gnats.core.runtime.state cimport MAX_POLLERS, ServerState
from gnats.core.runtime.timers cimport Timer, TimerHeap
from gnats.includes.pthread cimport pthread_mutex_t
from gnats.jetstream.engine.barrier cimport GroupCommit, JsPoller
from gnats.jetstream.engine.longwork cimport Work


# A timer. The control loop's thread, online and with no lock held, calls `fn`, which may arm the timer again.
cdef struct JsTimer:
    Timer timer          # timer.owner is passed to fn; set it before arming
    void (*fn)(void *owner, PollState *ps) noexcept nogil


cdef class Engine:
    """JetStream's part of one server's data plane; see the module."""
    cdef GroupCommit commit
    cdef pthread_mutex_t timer_lock
    cdef TimerHeap timers          # under timer_lock
    cdef int64_t armed             # the deadline that tmfd is set to, monotonic ns, 0: none; under timer_lock
    cdef int tmfd
    cdef JsPoller *js_pollers[MAX_POLLERS]    # by poller index; set before the first stream is made
    cdef PollState *control        # the control loop's poller
    cdef readonly list pollers     # all, the control loop's first
    cdef readonly ServerState state
    # clients: by poller, the subscriber that publishes for JetStream. graveyard: closed objects that a thread may still
    # use, each with the number of its qs_advance().
    cdef list clients, graveyard
    cdef bint closed

    cdef uint64_t rounds           # of timers; atomic: the control loop writes, stats() reads
    # Reserve room in the heap for n more timers; n < 0 gives it back. An owner reserves before it first arms a timer,
    # so that arm() needs no memory. False when out of memory. Any thread.
    cdef bint reserve(self, int n) noexcept nogil
    # Set the timer's deadline, monotonic ns; 0 disarms it. A deadline that has passed fires soon, after earlier ones.
    # Any thread; when it is not the control loop's, `fn` may be running while the timer is disarmed.
    cdef void arm(self, JsTimer *t, int64_t when) noexcept nogil
    # Call the timers that are due, TIMERS_AT_ONCE at most, then end a batch. The control loop's thread.
    cdef void expire(self) noexcept nogil


# Queue long work that `causer` has asked for: w.step is called in turn with other work. False when a client of the
# server itself has asked for too much; the caller then keeps `w`.
cdef bint queue_work(JsPoller *jp, Work *w, Source *causer) noexcept nogil
