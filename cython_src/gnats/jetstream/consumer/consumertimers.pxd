"""The deadlines of a consumer, and what is due when they pass (consumer.go). The consumer's lock is held."""
from libc.stdint cimport int64_t

from gnats.core.net.pollstate cimport PollState
from gnats.jetstream.consumer.consumerstate cimport ConsumerState


# Handle the deadlines that have passed.
cdef void timers_due(ConsumerState o, PollState *ps, int64_t wall) noexcept nogil
# Arm the timer for the first deadline.
cdef void arm_timer(ConsumerState o, PollState *ps, int64_t wall) noexcept nogil
# Begin or end the time of inactivity of a push consumer.
cdef void update_delivery_interest(ConsumerState o, bint interest, int64_t now) noexcept nogil
# Ask the client for an answer that says that it has received the messages under way.
cdef void send_flow_control(ConsumerState o, PollState *ps) noexcept nogil
