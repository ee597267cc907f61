"""Keeps a store's table of schedules in step with its messages.

Ports parts of storeRawMsg and recoverMsgSchedulingState (filestore.go).

The header Nats-Schedule makes a message a schedule. A message that a schedule produces names the schedule's subject in
Nats-Scheduler, and says in Nats-Schedule-Next when the schedule is due again. The caller holds the store's lock.
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.block cimport MsgBlock
from gnats.store.format.record cimport Record
from gnats.store.index.schedules cimport Schedule

# Call when a message was stored. It may be a schedule, end its subject's schedule, or say when a schedule is due again.
# A schedule that there is no memory for is found later: see `schedules_from`.
cdef void schedule_stored(StoreBase s, MsgBlock *b, const Record *r) noexcept nogil
# Call when a message was removed: drops its schedule.
cdef void schedule_removed(StoreBase s, const Record *r) noexcept nogil
# Adds the schedules among the messages from a sequence on. Ends early, with `schedules_from` set, when there is no
# memory.
cdef void schedule_scan(StoreBase s, uint64_t start) noexcept nogil
# Drops the schedules whose messages the store does not have.
cdef void schedule_settle(StoreBase s) noexcept nogil
# The first sequence that `schedules` does not cover: sched.db says from where on the next start has to search.
cdef uint64_t schedules_high(StoreBase s) noexcept nogil
# Searches for the schedules that there was no memory for.
cdef void find_missing(StoreBase s) noexcept nogil
# When to call take_schedule() next, ns since 1970; INT64_MAX: no schedule waits.
cdef int64_t next_schedule(StoreBase s) noexcept nogil
# Takes the first schedule that is due at `now`, after find_missing(); it is in flight then. NULL: none is due.
cdef Schedule *take_schedule(StoreBase s, int64_t now) noexcept nogil
