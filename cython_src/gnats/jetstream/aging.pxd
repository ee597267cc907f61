"""What a stream's timers do: messages that have expired go, or leave subject delete markers; message ids are forgotten.
"""
from gnats.core.pollstate cimport PollState

# Functions of JsTimers, whose owner is the StreamCore.
cdef void expire_msgs(void *owner, PollState *ps) noexcept nogil
cdef void purge_msg_ids(void *owner, PollState *ps) noexcept nogil
