"""The log of a consumer on one server: store each proposed entry at once (consumerFileStore in filestore.go).

The stored state has the consumer's last delivery and its ack floor. The consumer's lock is held.
"""
from gnats.jetstream.consumer.consumerstate cimport ConsumerEntry, ConsumerLog, ConsumerState

cdef ConsumerLog local_consumer_log


# Apply an entry to the stored state (UpdateDelivered, UpdateAcks).
cdef void store_consumer_entry(ConsumerState o, const ConsumerEntry *e) noexcept nogil
