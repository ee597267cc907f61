"""The end of a poller's batch: send what its connections have queued, together (flushClients of client.go)."""
from gnats.core.net.pollstate cimport PollState

# Run JetStream's hook, flush the connections with something queued, signal the owners of others that got messages,
# resume producers whose consumers have caught up, and arm the timer.
cdef void end_batch(PollState *ps) noexcept nogil
# The same for the control loop, outside of its poller's rounds: what is left has the poller do one.
cdef void end_batch_between_rounds(PollState *ps) noexcept nogil
