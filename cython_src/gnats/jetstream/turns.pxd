"""Long work that a client asks of its poller, done in turns: between two slices connections are read and answered.

A `Work` is queued for who asked for it, and those who have asked take turns, one slice each; a round lasts no longer
than ROUND. Work is charged to the connection as events are (core.inbox): who has asked for too much is not read until
some of it is done. It ends unfinished when the connection is closed.

All of it belongs to one poller's thread.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.inbox cimport Inbox, Source
from gnats.core.pollstate cimport PollState

cdef enum:
    WORK_EVENTS = 64        # that one piece of work counts for: SOURCE_EVENTS // 64 may wait


cdef struct Work:
    Work *next
    Source *payer
    size_t size             # bytes that it is charged with
    # Do a slice: True when there is more to do. No lock is held; the thread is online.
    bint (*step)(Work *w, PollState *ps) noexcept nogil
    void (*end)(Work *w) noexcept nogil    # it is done, or nobody waits for it: give it back


# One poller's.
cdef struct WorkList:
    Source *head
    Source *tail
    uint64_t batch          # PollState.wakeups that `spent` is of
    int64_t spent           # ns, on what was done in place


# May something be done in place in this batch, before connections have their turn? Say how long it took with work_took.
cdef bint work_in_place(WorkList *list, PollState *ps) noexcept nogil
cdef void work_took(WorkList *list, int64_t ns) noexcept nogil
# False when a client of the server itself has asked for too much: nothing was taken over.
cdef bint work_add(WorkList *list, PollState *ps, Work *w, Source *causer) noexcept nogil
# A round.
cdef void work_run(WorkList *list, PollState *ps) noexcept nogil
# No work will be done any more.
cdef void work_drop(WorkList *list, PollState *ps) noexcept nogil
