"""Long work that clients ask of a poller, done in slices: between rounds of slices the poller serves its connections.

Each connection that has asked has a queue of `Work`. The connections take turns, one slice each; a round takes about
ROUND at most. Work is charged to its connection as events are (core.runtime.inbox): a connection that has asked for too
much is not read until some of it is done. Work ends unfinished when its connection is closed.

All of it belongs to one poller's thread.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.inbox cimport Inbox, Source

cdef enum:
    WORK_EVENTS = 64        # events that a Work is charged as: a connection may have SOURCE_EVENTS // 64 of them


cdef struct Work:
    Work *next
    Source *payer
    size_t size             # bytes that it is charged as
    # Do a slice; True when there is more to do. No lock is held; the thread is online.
    bint (*step)(Work *w, PollState *ps) noexcept nogil
    void (*end)(Work *w) noexcept nogil    # free it: it is done, or its connection is closed


# The work of one poller.
cdef struct WorkList:
    Source *head            # the connections that have work, in the order of their turns
    Source *tail
    uint64_t batch          # the PollState.wakeups in which `spent` was spent
    int64_t spent           # ns of that batch spent on work in place


# Return whether a first slice may be done in place, within this batch. Report the time that it took with work_took().
cdef bint work_in_place(WorkList *list, PollState *ps) noexcept nogil
cdef void work_took(WorkList *list, int64_t ns) noexcept nogil
# Queue work. False when `causer`, a client of the server itself, has asked for too much; the caller then keeps `w`.
cdef bint work_add(WorkList *list, PollState *ps, Work *w, Source *causer) noexcept nogil
# Run a round of slices.
cdef void work_run(WorkList *list, PollState *ps) noexcept nogil
# End all work unfinished.
cdef void work_drop(WorkList *list, PollState *ps) noexcept nogil
