"""Keeps a store's table of schedules in step with its messages.

Ports parts of storeRawMsg and recoverMsgSchedulingState (filestore.go).

The header Nats-Schedule makes a message a schedule. A message that a schedule produces names the schedule's subject in
Nats-Scheduler, and says in Nats-Schedule-Next when the schedule is due again. The caller holds the store's lock.
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.block cimport MsgBlock
from gnats.store.format.record cimport Record

# Call when a message was stored. It may be a schedule, end its subject's schedule, or say when a schedule is due again.
cdef void schedule_stored(StoreBase s, MsgBlock *b, const Record *r) noexcept nogil
# Call when a message was removed: drops its schedule.
cdef void schedule_removed(StoreBase s, const Record *r) noexcept nogil
# Adds the schedules among the messages from a sequence on.
cdef void schedule_scan(StoreBase s, uint64_t start) noexcept nogil
# Drops the schedules whose messages the store does not have.
cdef void schedule_settle(StoreBase s) noexcept nogil
