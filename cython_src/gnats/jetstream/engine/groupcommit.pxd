"""Group commit: a thread of the engine syncs streams, once for all the pollers that wait for it.

A poller gives it a SyncBatch at the end of a batch: the streams that were flushed, and the answers and consumers that
wait for their sync (gnats.jetstream.engine.barrier). The thread takes all that are queued, syncs each stream once, and
gives the SyncBatches back to their pollers.

Lock: `GroupCommit.lock`, a leaf (docs/locks.md), guards the queue of the sync thread and each poller's `done`.
"""
from gnats.jetstream.engine.barrier cimport GroupCommit, JsPoller, SyncBatch

cdef void commit_init(GroupCommit *g) noexcept nogil
cdef void commit_free(GroupCommit *g) noexcept nogil
# Start the sync thread. Return 0 or an errno. Idempotent. The control loop.
cdef int commit_start(GroupCommit *g) noexcept nogil
# Sync what is queued, then end the thread. Idempotent. The control loop.
cdef void commit_stop(GroupCommit *g) noexcept nogil
# Free a list of SyncBatches, with the answers in them.
cdef void free_batches(SyncBatch *batch) noexcept nogil

# -- in a poller's own thread, at the end of a batch --

# Queue a SyncBatch with the streams that were flushed in this batch. publish_later() and run_when_visible() mark their
# stream dirty, so every answer in `synced` and every consumer in `held` waits for one of these streams. Without
# memory for a SyncBatch this thread syncs the streams itself, and nothing waits.
cdef void give_to_sync(JsPoller *jp) noexcept nogil
# Take what the sync thread has given back.
cdef void take_synced(JsPoller *jp) noexcept nogil
# Send the answers in it until the turn is over, and have the consumers run whose answers are sent.
cdef void pass_synced(JsPoller *jp) noexcept nogil
