"""Deliver a consumer's messages (loopAndGatherMsgs of consumer.go).

run() *gathers* a slice of messages under the consumer's lock, then sends them without it. One thread at a time does so.
A thread that calls run() meanwhile returns at once, and the first thread goes round once more.
"""
from gnats.core.net.pollstate cimport PollState
from gnats.jetstream.engine.consumerbase cimport ConsumerBase


# ConsumerType.run.
cdef void on_run(ConsumerBase base, PollState *ps) noexcept nogil
# The functions of ConsumerState.timer and kicker.
cdef void on_timer(void *owner, PollState *ps) noexcept nogil
cdef void on_kicked(void *owner, PollState *ps) noexcept nogil
