"""Give up the batches of a stream, of both kinds, that nothing is heard of for the limits' time-out.

One timer of the stream does; it takes the stream's lock.
"""
from gnats.core.pollstate cimport PollState


# The function of batch_timer, whose owner is the StreamCore.
cdef void abandon_batches(void *owner, PollState *ps) noexcept nogil
