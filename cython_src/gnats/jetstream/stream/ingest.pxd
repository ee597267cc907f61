"""Messages on their way into a stream (processInboundJetStreamMsg of stream.go).

A stream's subscriptions are native: the poller that delivers a message calls process_inbound_jetstream_msg in place,
which checks the message, stores it and notes the reply. The order of the checks, the replies and their texts are
nats-server's.
"""
from gnats.core.messages.message cimport Message
from gnats.core.subjects.sublist cimport Subscription
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.publish.inbound cimport Inbound
from gnats.jetstream.state.entry cimport Outcome
from gnats.jetstream.state.streamcore cimport StreamCore


# The function of a stream's NativeSub; ctx is the StreamCore. Return False when the stream is not open: the message
# then counts as not delivered. Takes the stream's lock.
cdef bint process_inbound_jetstream_msg(void *ctx, const Message *msg, const Subscription *sub) noexcept nogil
# Store a message of the server itself. Takes the stream's lock; the caller frees m.
cdef Outcome process_jetstream_msg(StreamCore s, JsPoller *jp, Inbound *m) noexcept nogil
# Check a message, have the log store it, and answer its reply subject. The stream's lock is held.
cdef Outcome store_inbound(StreamCore s, JsPoller *jp, Inbound *m) noexcept nogil
