"""Traces of messages whose headers ask for them (msgtrace.go). What happens to such a message is noted while it is
routed, then posted to the control plane, which publishes it to the subject that the message or its account names.

Hardly any message has a trace; a message without a header costs nothing.
"""
from libc.stddef cimport size_t

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport Message
from gnats.core.runtime.slice cimport Slice


cdef enum TraceOutcome:
    TRACE_NOT     # not traced: handle the message
    TRACE_SKIP    # do not handle the message
    TRACE_ON      # traced: handle the message


# Return whether the header of a message may ask for a trace. A quick look, which may say yes wrongly.
cdef bint may_be_traced(Subscriber publisher, const Message *m) noexcept nogil
# Begin a trace of a message, if it is to have one. disable[0]: mark the message, so that no later server traces it. A
# leaf node's session checks itself whether the peer may publish to m.trace_dest.
cdef TraceOutcome init_msg_trace(Subscriber publisher, Message *m, bint *disable) noexcept nogil
# Post the notes of m.trace, unless memory ran out for one, and free it.
cdef void send_msg_trace(Subscriber publisher, const Message *m) noexcept nogil

# Set Nats-Trace-Dest in a message's header to `value`; NULL: to the value that disables tracing. Return the message's
# new header and payload, to be freed; NULL without memory. `sizes`: see message_set_data.
cdef char *set_trace_dest(Message *m, const Slice *value, char *sizes) noexcept nogil
# The same for Nats-Trace-Hop.
cdef char *set_trace_hop(Message *m, const Slice *value, char *sizes) noexcept nogil
