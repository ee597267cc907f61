"""The functions of a stream's timers.

They remove expired messages, or leave subject delete markers; do the rollups that wait; forget message ids.
"""
from gnats.core.net.pollstate cimport PollState

# Functions of expiry_timer and dedupe_timer; owner is the StreamCore. They take the stream's lock.
cdef void expire_msgs(void *owner, PollState *ps) noexcept nogil
cdef void purge_msg_ids(void *owner, PollState *ps) noexcept nogil
