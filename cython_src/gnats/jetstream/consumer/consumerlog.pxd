"""On a single server a consumer has no log: apply proposed entries at once (consumerFileStore in filestore.go).

Replication will put a log here. A log is given checked entries (ConsumerLog.propose) and calls store_consumer_entry()
for each, in the log's order. This module alone changes the stored state. The consumer's lock is held.
"""
from libc.stdint cimport uint64_t

from gnats.jetstream.consumer.acked cimport Acked
from gnats.jetstream.consumer.consumerentry cimport ConsumerEntry, ConsumerOutcome
from gnats.jetstream.consumer.consumerstate cimport ConsumerLog, ConsumerState
from gnats.store.format.codec cimport ConsumerSnapshot

cdef ConsumerLog local_consumer_log


# Apply an entry to the stored state. acked: gets the sequences that an OP_ACKED acknowledges; NULL: the caller does not
# need them.
cdef ConsumerOutcome store_consumer_entry(ConsumerState o, const ConsumerEntry *e, Acked *acked) noexcept nogil
# Copy the stored state, for the caller to encode and free. False when out of memory.
cdef bint snapshot_state(ConsumerState o, ConsumerSnapshot *snap) noexcept nogil
# Set the stored state that the log's entries follow; without the counts of messages below the sequence `first`. False
# when out of memory.
cdef bint restore_state(ConsumerState o, const ConsumerSnapshot *snap, uint64_t first) noexcept nogil
