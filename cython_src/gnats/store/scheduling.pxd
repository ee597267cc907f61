"""The schedules among the messages of a store: found when they are stored, forgotten when they go.

Nats-Schedule makes a message a schedule. What a schedule produces names it in Nats-Scheduler, and says in
Nats-Schedule-Next when it is due again. (storeRawMsg and recoverMsgSchedulingState of filestore.go)
"""
from libc.stdint cimport int64_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.block cimport MsgBlock
from gnats.store.record cimport Record

# A message is in a block now: a schedule, one that ends its subject's schedule, or one that says when it is due again.
cdef void schedule_stored(StoreBase s, MsgBlock *b, const Record *r) noexcept nogil
cdef void schedule_removed(StoreBase s, const Record *r) noexcept nogil
# Finds the schedules among the messages from a sequence on.
cdef void schedule_scan(StoreBase s, uint64_t start) noexcept nogil
# Forgets those whose messages are not there.
cdef void schedule_settle(StoreBase s) noexcept nogil
