"""Messages on their way into a stream (processInboundJetStreamMsg of stream.go).

A stream's subscriptions are native: whoever delivers a message calls process_inbound_jetstream_msg in place, which
checks it, stores it and notes the reply. The order of the checks, the replies and their texts are nats-server's.
"""
from gnats.core.message cimport Message
from gnats.core.sublist cimport Subscription
from gnats.jetstream.barrier cimport Local
from gnats.jetstream.entry cimport Outcome
from gnats.jetstream.inbound cimport Inbound
from gnats.jetstream.streamcore cimport StreamCore


# The function of a stream's NativeSub; ctx is the StreamCore.
cdef bint process_inbound_jetstream_msg(void *ctx, const Message *msg, const Subscription *sub) noexcept nogil
# A message of the server itself.
cdef void process_jetstream_msg(StreamCore s, Local *local, Inbound *m) noexcept nogil
# The same for who holds the stream's lock: check it, and have the log store it.
cdef Outcome store_inbound(StreamCore s, Local *local, Inbound *m) noexcept nogil
