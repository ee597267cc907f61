"""Keep a store's table of schedules in step with its messages.

Ports parts of storeRawMsg and recoverMsgSchedulingState (filestore.go).

The header Nats-Schedule makes a message a schedule. A message that a schedule produces names the schedule's subject in
Nats-Scheduler, and says in Nats-Schedule-Next when the schedule is due again. The caller holds the store's lock.
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.block cimport MsgBlock
from gnats.store.format.record cimport Record
from gnats.store.index.schedules cimport Schedule

# Note a stored message: it may be a schedule, end its subject's schedule, or say when a schedule is due again. A
# schedule that there is no memory for is found later: see `schedules_from`.
cdef void schedule_stored(StoreBase s, MsgBlock *b, const Record *r) noexcept nogil
# Drop the schedule of a removed message.
cdef void schedule_removed(StoreBase s, const Record *r) noexcept nogil
# Add the schedules among the messages from a sequence on. End early, with `schedules_from` set, when there is no
# memory.
cdef void schedule_scan(StoreBase s, uint64_t start) noexcept nogil
# Drop the schedules whose messages the store does not have.
cdef void schedule_settle(StoreBase s) noexcept nogil
# Return the first sequence that `schedules` does not cover. sched.db has it, for the next start to search from.
cdef uint64_t schedules_high(StoreBase s) noexcept nogil
# Search for the schedules that there was no memory for.
cdef void find_missing(StoreBase s) noexcept nogil
# Return when to call take_schedule() next, ns since 1970; INT64_MAX: no schedule waits.
cdef int64_t next_schedule(StoreBase s) noexcept nogil
# Take the first schedule that is due at `now`, after find_missing(); it is in flight then. NULL: none is due.
cdef Schedule *take_schedule(StoreBase s, int64_t now) noexcept nogil
