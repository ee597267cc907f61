"""Abandon a stream's atomic and fast batches that have had no message for BatchLimits.timeout."""
from gnats.core.net.pollstate cimport PollState


# The function of batch_timer; owner is the StreamCore. Takes the stream's lock.
cdef void abandon_batches(void *owner, PollState *ps) noexcept nogil
