"""Deliver a consumer's messages again whose ack wait ends without an acknowledgement (consumer.go)."""
from libc.stdint cimport int64_t, uint64_t

from gnats.jetstream.consumer.consumerstate cimport ConsumerState
from gnats.jetstream.consumer.pending cimport DeliveredMsg


# -- lock held --

# Raise the ack floors after a message, no longer pending, was acknowledged.
cdef void move_ack_floor(ConsumerState o, uint64_t dseq, uint64_t sseq) noexcept nogil
# Stop delivering a pending message, because its dc-th delivery would be one too many. It is not pending any more, but
# stays in the stream.
cdef void give_up(ConsumerState o, const DeliveredMsg *e, uint64_t dc, int64_t wall) noexcept nogil
# Queue the messages whose ack wait is over for redelivery. True when the redelivery queue is not empty.
cdef bint check_pending(ConsumerState o, int64_t wall) noexcept nogil
# Return when an ack wait ends that begins at `start`, ns since 1970; at least MIN_WAIT later.
cdef int64_t next_deadline(ConsumerState o, int64_t start, const DeliveredMsg *e) noexcept nogil
# Queue all pending messages for redelivery, for a new deliver subject.
cdef void force_expire_pending(ConsumerState o, int64_t wall) noexcept nogil
