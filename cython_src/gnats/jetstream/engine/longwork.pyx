"""Long work, done in slices; see longwork.pxd."""
from libc.stdint cimport int64_t

from gnats.core.net.connection cimport Connection
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.inbox cimport Inbox, Source
from gnats.includes.atomics cimport load8
from gnats.includes.linux cimport stopwatch_ns

cdef int64_t ROUND = 1000000       # ns of a round, before connections have their turn
cdef int64_t IN_PLACE = 1000000    # ns of a batch for work in place


cdef bint work_in_place(WorkList *list, PollState *ps) noexcept nogil:
    if list.batch != ps.wakeups:
        list.batch = ps.wakeups
        list.spent = 0
    return list.spent < IN_PLACE


cdef void work_took(WorkList *list, int64_t ns) noexcept nogil:
    list.spent += ns


cdef void join(WorkList *list, Source *payer) noexcept nogil:
    payer.work_next = NULL
    if list.head == NULL:
        list.head = payer
    else:
        list.tail.work_next = payer
    list.tail = payer


cdef void append(Source *payer, Work *w) noexcept nogil:
    w.next = NULL
    if payer.work == NULL:
        payer.work = w
    else:
        (<Work *> payer.work_last).next = w
    payer.work_last = w


cdef bint work_add(WorkList *list, PollState *ps, Work *w, Source *causer) noexcept nogil:
    cdef Source *payer = (<Inbox> ps.inbox).owe(causer, WORK_EVENTS, w.size)
    if payer == NULL:
        return False
    w.payer = payer
    if payer.work == NULL:
        join(list, payer)
    append(payer, w)
    return True


cdef void work_run(WorkList *list, PollState *ps) noexcept nogil:
    cdef int64_t start
    cdef Source *payer
    cdef Work *w
    if list.head == NULL:
        return
    start = stopwatch_ns()
    while list.head != NULL:
        payer = list.head
        list.head = payer.work_next
        w = <Work *> payer.work
        payer.work = w.next
        if not load8(&(<Connection> payer.owner).closing) and w.step(w, ps):
            append(payer, w)
            w = NULL
        if payer.work != NULL:
            join(list, payer)
        if w != NULL:
            finish(ps, w)
        if stopwatch_ns() - start >= ROUND:
            return


cdef void work_drop(WorkList *list, PollState *ps) noexcept nogil:
    cdef Source *payer
    cdef Work *w
    while list.head != NULL:
        payer = list.head
        list.head = payer.work_next
        while payer.work != NULL:
            w = <Work *> payer.work
            payer.work = w.next
            finish(ps, w)


cdef void finish(PollState *ps, Work *w) noexcept nogil:
    cdef Source *payer = w.payer
    cdef size_t size = w.size
    w.end(w)
    (<Inbox> ps.inbox).settle(payer, WORK_EVENTS, size)
