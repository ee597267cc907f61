"""The log of a consumer on one server: what is proposed is stored at once (consumerFileStore in filestore.go).

The stored state says how far a consumer has delivered, and up to where all is acknowledged. The consumer's lock is
held.
"""
from gnats.jetstream.consumerstate cimport ConsumerEntry, ConsumerLog, ConsumerState

cdef ConsumerLog local_consumer_log


# An entry becomes part of the stored state (UpdateDelivered, UpdateAcks).
cdef void store_consumer_entry(ConsumerState o, const ConsumerEntry *e) noexcept nogil
