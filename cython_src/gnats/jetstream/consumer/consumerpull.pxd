"""The pull requests of a consumer: check and queue them, choose the next to serve, end them (consumer.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from gnats.core.messages.message cimport Message
from gnats.core.net.pollstate cimport PollState
from gnats.core.subjects.sublist cimport Subscription
from gnats.jetstream.consumer.consumerstate cimport ConsumerState
from gnats.jetstream.consumer.requests cimport WaitingRequest


# -- no lock held --

# A pull request was published. ctx: the ConsumerState.
cdef bint on_request(void *ctx, const Message *m, const Subscription *s) noexcept nogil
# Queue a pull request, from a client or an ack with +NXT. False when the consumer is closed.
cdef bint process_next_msg_request(ConsumerState o, PollState *ps, const char *reply, size_t rn, const char *msg,
                                   size_t n) noexcept nogil

# -- lock held --

# Choose the request for a message of `size` bytes, NULL for none. npc: messages still to be delivered, this one
# included. When the request's n is 0 or less, it has left the queue and the caller frees it.
cdef WaitingRequest *next_waiting(ConsumerState o, PollState *ps, size_t size, int64_t npc) noexcept nogil
# End the requests that have expired or have no subscriber; with eos (there is no message for them), those with no_wait
# too. Send heartbeats that are due.
cdef void process_waiting(ConsumerState o, bint eos, int64_t now) noexcept nogil
# Tell the consumer's other replicas of the requests that wait.
cdef void announce_requests(ConsumerState o) noexcept nogil
cdef void send_idle_heartbeat(ConsumerState o, const char *dest, size_t n) noexcept nogil
