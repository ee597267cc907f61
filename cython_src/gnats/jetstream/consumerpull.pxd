"""The pull requests of a consumer: which are taken, which is served next, and which end otherwise (consumer.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t

from gnats.core.pollstate cimport PollState
from gnats.jetstream.consumeracks cimport ConsumerAcks
from gnats.jetstream.requests cimport NextRequest, WaitingRequest


cdef class ConsumerPull(ConsumerAcks):
    cdef bytes expires_text            # of max_expires, as errors word it; the control loop replaces it under lock
    cdef const char *expires_text_p
    cdef bytes group_name              # of the one priority group there can be; the same
    cdef const char *group             # NULL: none
    cdef size_t group_n
    cdef int64_t looked_at             # when process_waiting() ran last

    # -- lock held --
    cdef bint take_request(self, PollState *ps, const char *reply, size_t rn, const char *msg,
                           size_t n) noexcept nogil
    cdef bint refuse(self, const char *reply, size_t rn, const char *text) noexcept nogil    # False
    cdef bint group_allowed(self, PollState *ps, const NextRequest *req, const char *reply,
                            size_t rn) noexcept nogil
    # Is somebody listening for what it asks for?
    cdef bint request_has_interest(self, WaitingRequest *wr) noexcept nogil
    # The same for one that came from another account: does that one's requester still listen ?
    cdef bint requester_listens(self, const WaitingRequest *wr) noexcept nogil
    # Whom a message of `size` bytes is for, NULL for nobody. npc: messages that are pending, this one included. It is
    # out of the queue, to be freed, when its n is 0 or less.
    cdef WaitingRequest *next_waiting(self, PollState *ps, size_t size, int64_t npc) noexcept nogil
    cdef bint may_be_served(self, PollState *ps, WaitingRequest *wr, int64_t npc, bint *removed,
                            bint *assigned) noexcept nogil
    # End requests: those that expire, those nobody listens for, those that do not wait (eos: there is nothing for
    # them). Heartbeats.
    cdef void process_waiting(self, bint eos, int64_t now) noexcept nogil
    cdef int64_t asked_before(self, int64_t now) noexcept nogil
    cdef void end_request(self, WaitingRequest *wr, const char *text) noexcept nogil    # and free it
    cdef void send_idle_heartbeat(self, const char *dest, size_t n) noexcept nogil
    cdef void set_pinned_timer(self, int64_t now) noexcept nogil
    cdef void assign_new_pin(self, PollState *ps, WaitingRequest *wr) noexcept nogil
    cdef void unassign_pin(self) noexcept nogil
