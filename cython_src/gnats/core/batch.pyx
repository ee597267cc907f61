"""The end of a poller's batch; see batch.pxd."""
from libc.stdint cimport int64_t, uint32_t

from gnats.core.accounts.departures cimport remove_departed
from gnats.core.net.connection cimport Connection
from gnats.core.net.pollstate cimport PollState, hand_over_first, pollstate_busy
from gnats.core.runtime.clock cimport timerfd_arm
from gnats.core.runtime.timers cimport timers_next
from gnats.includes.atomics cimport exchange8, load8_acquire, store64, unlikely
from gnats.includes.linux cimport eventfd_write, stopwatch_ns

cdef enum:
    FLUSH_WORTH = 16 * 1024        # bytes; while more input is expected, shorter queues wait
    FLUSH_WITHIN = 2000000         # ns that they wait at most,
    FLUSH_SHARE = 8                # and this many times as long as a flush takes, but no longer than FLUSH_LATE,
    FLUSH_LATE = 20000000          # ns, while connections wait for a turn: they have more than a turn's messages


cdef void end_batch(PollState *ps) noexcept nogil:
    hand_over_first(ps)
    if unlikely(ps.js_dirty or ps.js_ready or load8_acquire(&ps.js_signalled)):
        ps.js_hook(ps)
        hand_over_first(ps)
    remove_departed()   # before answers leave
    flush_batch(ps)
    if exchange8(&ps.resume_stalled, 0):
        while ps.stalled != NULL:
            (<Connection> ps.stalled).unpause()
    remove_departed()   # of connections that were closed meanwhile
    if timers_next(&ps.timers) != ps.armed:
        arm_timer(ps)


cdef void end_batch_between_rounds(PollState *ps) noexcept nogil:
    end_batch(ps)
    if ps.dirty != NULL or pollstate_busy(ps):
        eventfd_write(ps.evfd, 1)


cdef void arm_timer(PollState *ps) noexcept nogil:
    if timerfd_arm(ps.tmfd, timers_next(&ps.timers), &ps.armed) < 0:
        eventfd_write(ps.evfd, 1)   # tried again at the end of the next batch, which is at once


cdef void flush_batch(PollState *ps) noexcept nogil:
    cdef uint32_t i
    cdef void *at
    cdef void *following
    cdef void *later = NULL
    cdef bint all
    cdef int64_t start, wait
    for i in range(ps.ntouched):
        (<Connection> ps.touched[i]).signal_owner()
    ps.ntouched = 0
    all = not ps.more
    ps.more = 0   # also when nothing waits: it says nothing about what the next batch queues
    if ps.dirty == NULL:
        return
    # With more input at hand, short queues may get longer before they are worth a system call each: collect for as
    # long as flushing took the last time, and no longer. What is still to be routed of a read takes many rounds, and a
    # flush of all in each of them could take longer than the routing.
    start = stopwatch_ns()
    wait = min(ps.flush_cost, <int64_t> FLUSH_WITHIN)
    if ps.waiting != NULL:
        wait = min(ps.flush_cost * FLUSH_SHARE, <int64_t> FLUSH_LATE)
    all = all or start - ps.flushed > wait
    while ps.dirty != NULL:
        at = ps.dirty
        ps.dirty = NULL
        while at != NULL:
            following = (<Connection> at).dirty_next
            if all or worth_flushing(<Connection> at):
                flush_dirty(<Connection> at)
            else:
                later = keep_dirty(<Connection> at, later)
            at = following
    ps.dirty = later
    if all:
        ps.flushed = stopwatch_ns()
        ps.flush_cost = ps.flushed - start


cdef bint worth_flushing(Connection c) noexcept nogil:
    return c.torn or c.out.bytes >= FLUSH_WORTH


cdef void *keep_dirty(Connection c, void *following) noexcept nogil:
    c.dirty_next = following
    return <void *> c


cdef void flush_dirty(Connection c) noexcept nogil:
    c.dirty = 0
    if c.torn:
        c.post_closed()
    elif c.want_write:
        store64(&c.backlog, c.out.bytes)
    else:
        c.flush_outbound()
