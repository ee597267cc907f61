"""Batches of messages that are stored together or not at all (processJetStreamAtomicBatchMsg of stream.go; ADR-50).

What belongs to a batch is kept in memory until its commit, which checks all of it and then stores all of it under one
hold of the stream's lock: nobody sees a part. It is flushed at once, too; should the server be killed meanwhile, the
part of a batch that is at the end of the store is removed at the next start (`drop_partial_batch`).
"""
from libc.stdint cimport uint64_t

from gnats.jetstream.barrier cimport Local
from gnats.jetstream.batchtable cimport OpenBatch
from gnats.jetstream.entry cimport Outcome
from gnats.jetstream.inbound cimport Inbound
from gnats.jetstream.streamcore cimport StreamCore

# A message with a Nats-Batch-Id; the lock is held. MSG_STORED for one that ends its batch, and all of it is stored.
cdef Outcome process_atomic_batch_msg(StreamCore s, Local *local, Inbound *m) noexcept nogil
# Forget it; the lock is held.
cdef void drop_atomic_batch(StreamCore s, OpenBatch *b) noexcept nogil
cdef void drop_atomic_batches(StreamCore s) noexcept nogil
# After a start: remove what is left of a batch that was not stored to its end; the lock is held. How many messages.
cdef uint64_t drop_partial_batch(StreamCore s) noexcept nogil
