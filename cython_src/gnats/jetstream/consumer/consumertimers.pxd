"""The deadlines of a consumer, and what is due when they pass (consumer.go). The consumer's lock is held."""
from libc.stdint cimport int64_t

from gnats.core.net.pollstate cimport PollState
from gnats.jetstream.consumer.consumerstate cimport ConsumerState


# Do what the deadlines that have passed ask for.
cdef void timers_due(ConsumerState o, PollState *ps, int64_t wall) noexcept nogil
# Arm the timer for the first deadline.
cdef void arm_timer(ConsumerState o, PollState *ps, int64_t wall) noexcept nogil
# Begin or end the time of inactivity of a push consumer.
cdef void update_delivery_interest(ConsumerState o, bint interest, int64_t now) noexcept nogil
# Have the client answer, to say that it has received what is under way.
cdef void send_flow_control(ConsumerState o, PollState *ps) noexcept nogil
