"""Traces of messages whose headers ask for them (msgtrace.go): what happens to a message is noted while it is routed,
and then posted to the control plane, which tells the subject that the message or its account names.

Nearly no message has a trace, and for those without a header nothing is done.
"""
from libc.stddef cimport size_t

from gnats.core.message cimport Message
from gnats.core.msgtrace cimport MsgTrace
from gnats.core.slice cimport Slice
from gnats.core.subscriber cimport Subscriber


cdef enum TraceOutcome:
    TRACE_NOT     # handle the message, there is nothing to trace
    TRACE_SKIP    # do not handle it
    TRACE_ON


# Does the header of a message say anything about tracing? A quick look, that may be wrong with yes.
cdef bint may_be_traced(Subscriber publisher, const Message *m) noexcept nogil
# Begin a trace of a message, if it is to have one. `disable`: servers behind this one are not to trace it.
cdef TraceOutcome init_msg_trace(Subscriber publisher, Message *m, bint *disable) noexcept nogil
# Post what was noted, and free the trace.
cdef void send_msg_trace(Subscriber publisher, MsgTrace *t) noexcept nogil

# Set Nats-Trace-Dest in a message's header to `value` (NULL: to what says that the message is not to be traced). The
# message is then in the memory returned, to be freed; NULL when there is none. `sizes`: see message_set_data.
cdef char *set_trace_dest(Message *m, const Slice *value, char *sizes) noexcept nogil
