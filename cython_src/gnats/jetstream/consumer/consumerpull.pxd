"""The pull requests of a consumer: check and queue them, choose the next to serve, end them (consumer.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from gnats.core.net.pollstate cimport PollState
from gnats.jetstream.consumer.consumeracks cimport ConsumerAcks
from gnats.jetstream.consumer.requests cimport NextRequest, WaitingRequest


cdef class ConsumerPull(ConsumerAcks):
    cdef bytes expires_text            # max_expires as errors show it; the control loop replaces it under the lock
    cdef const char *expires_text_p
    cdef bytes group_name              # the priority group, of which there is one at most; replaced likewise
    cdef const char *group             # NULL: no priority group
    cdef size_t group_n
    cdef int64_t looked_at             # when process_waiting() ran last, monotonic ns

    # -- lock held --
    # Check and queue a pull request. False when it is refused.
    cdef bint take_request(self, PollState *ps, const char *reply, size_t rn, const char *msg,
                           size_t n) noexcept nogil
    # Answer with an error status. Returns False, for the caller to return.
    cdef bint refuse(self, const char *reply, size_t rn, const char *text) noexcept nogil
    # Check a request's priority group, and answer if it is refused.
    cdef bint group_allowed(self, PollState *ps, const NextRequest *req, const char *reply,
                            size_t rn) noexcept nogil
    # Has the request's reply subject a subscriber?
    cdef bint request_has_interest(self, WaitingRequest *wr) noexcept nogil
    # The same for a request that came through a service import: has the original reply subject a subscriber?
    cdef bint requester_listens(self, const WaitingRequest *wr) noexcept nogil
    # Choose the request for a message of `size` bytes, NULL for none. npc: messages still to be delivered, this one
    # included. When the request's n is 0 or less, it has left the queue and the caller frees it.
    cdef WaitingRequest *next_waiting(self, PollState *ps, size_t size, int64_t npc) noexcept nogil
    # Do the pin, or the request's overflow thresholds, let it have the next message? Sets removed[0] when it has ended
    # the request, assigned[0] when it has given it a new pin.
    cdef bint may_be_served(self, PollState *ps, WaitingRequest *wr, int64_t npc, bint *removed,
                            bint *assigned) noexcept nogil
    # End the requests that have expired or have no subscriber; with eos (there is no message for them), those with
    # no_wait too. Send heartbeats that are due.
    cdef void process_waiting(self, bint eos, int64_t now) noexcept nogil
    # The number of messages that live requests wait for.
    cdef int64_t asked_before(self, int64_t now) noexcept nogil
    # End a request with a status, and free it.
    cdef void end_request(self, WaitingRequest *wr, const char *text) noexcept nogil
    cdef void send_idle_heartbeat(self, const char *dest, size_t n) noexcept nogil
    # Let the pin's time begin anew.
    cdef void set_pinned_timer(self, int64_t now) noexcept nogil
    cdef void assign_new_pin(self, PollState *ps, WaitingRequest *wr) noexcept nogil
    cdef void unassign_pin(self) noexcept nogil
