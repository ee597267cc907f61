"""The end of a poller's batch: what its connections have queued leaves, together."""
from gnats.core.pollstate cimport PollState

# Flush what has been queued, signal the owners of others that got something, let producers go on whose consumers have
# caught up, and arm the timer.
cdef void end_batch(PollState *ps) noexcept nogil
