"""Messages on their way into a stream (processInboundJetStreamMsg of stream.go).

A stream's subscriptions are native: whoever delivers a message calls process_inbound_jetstream_msg in place, which
checks it, stores it and notes the reply. The order of the checks, the replies and their texts are nats-server's.
"""
from libc.stddef cimport size_t

from gnats.core.message cimport Message
from gnats.core.sublist cimport Subscription
from gnats.jetstream.engine cimport Local
from gnats.jetstream.inbound cimport Inbound, Outcome, Taken
from gnats.jetstream.streamcore cimport StreamCore


# The function of a stream's NativeSub; ctx is the StreamCore.
cdef bint process_inbound_jetstream_msg(void *ctx, const Message *msg, const Subscription *sub) noexcept nogil
# A message of the server itself, or of another stream when `sourced`, which is stored as it is.
cdef void process_jetstream_msg(StreamCore s, Local *local, Inbound *m, bint sourced) noexcept nogil
# The same for who holds the stream's lock, and calls after_take() after leave().
cdef Outcome take(StreamCore s, Local *local, Inbound *m, bint sourced, Taken *t) noexcept nogil
