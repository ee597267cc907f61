"""Handle a consumer's acknowledgements (consumer.go)."""
from libc.stdint cimport int64_t, uint64_t

from gnats.core.messages.message cimport Message
from gnats.core.subjects.sublist cimport Subscription
from gnats.jetstream.consumer.consumerstate cimport ConsumerState


# -- called for messages; no lock held --

# An acknowledgement was published to the reply subject of a message. ctx: the ConsumerState.
cdef bint on_ack(void *ctx, const Message *m, const Subscription *s) noexcept nogil
# An answer to a flow control request was published.
cdef bint on_flow_control(void *ctx, const Message *m, const Subscription *s) noexcept nogil

# -- lock held --

# Terminate a message that was removed from the stream. Set signal[0] when max_ack_pending held deliveries back until
# now.
cdef void process_deleted(ConsumerState o, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall,
                          bint *signal) noexcept nogil
