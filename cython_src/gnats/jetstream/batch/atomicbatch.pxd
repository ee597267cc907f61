"""Atomic batches: messages stored together or not at all (processJetStreamAtomicBatchMsg of stream.go; ADR-50).

An atomic batch's messages are staged in memory until its commit. The commit checks all of them and stores all of them
under one hold of the stream's lock, so no reader sees a part. If the server is killed while they are written,
`drop_partial_batch` removes the part at the end of the store at the next start.
"""
from libc.stdint cimport uint64_t

from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.state.batchtable cimport OpenBatch
from gnats.jetstream.state.entry cimport Outcome
from gnats.jetstream.state.streamcore cimport StreamCore

# The stream's lock is held for all of these.

# Handle a message with a Nats-Batch-Id, and answer it. Return MSG_STORED when it is staged, or when it commits its
# atomic batch and the log has stored all of it.
cdef Outcome process_atomic_batch_msg(StreamCore s, JsPoller *jp, Inbound *m) noexcept nogil
# Forget an open atomic batch and free its messages.
cdef void drop_atomic_batch(StreamCore s, OpenBatch *b) noexcept nogil
# Forget all open atomic batches of the stream.
cdef void drop_atomic_batches(StreamCore s) noexcept nogil
# At a start: remove the part of an atomic batch at the end of the store if its commit was not stored completely.
# Return the number of messages removed.
cdef uint64_t drop_partial_batch(StreamCore s) noexcept nogil
