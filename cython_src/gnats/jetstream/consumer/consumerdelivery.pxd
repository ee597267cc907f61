"""Deliver a consumer's messages (loopAndGatherMsgs of consumer.go).

run() *gathers* a slice of messages under the consumer's lock, then sends them without it. One thread at a time does so.
A thread that calls run() meanwhile returns at once, and the first thread goes round once more.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.jetstream.consumer.consumerpull cimport ConsumerPull
from gnats.jetstream.consumer.requests cimport WaitingRequest
from gnats.jetstream.consumer.send_queue cimport OutQ
from gnats.store.base cimport StoreMsg

cdef enum:
    AHEAD = 32         # messages looked up at once under the store's lock

cdef enum Gathered:
    GATHER_WAIT        # nothing to deliver until an event wakes the consumer
    GATHER_MORE        # the slice is full: there may be more
    GATHER_HELD        # nothing may be delivered before held_until


# The next messages to deliver, looked up. A redelivery may still go before them.
cdef struct Lookahead:
    StoreMsg msgs[AHEAD]
    uint32_t at, n     # the next one; how many
    bint end           # the stream has no further message for the consumer
    int64_t npc        # messages still to be delivered, the looked-up ones included


cdef class ConsumerDelivery(ConsumerPull):
    cdef uint8_t busy, again       # a thread is in run(); run() was called since that thread last looked. Atomic
    cdef bint failed               # a message sent to the deliver subject found no subscriber; under lock
    cdef uint8_t listeners         # the deliver subject has a subscriber; atomic: Consumer.notification writes
    cdef OutQ spare                # the empty queue that `out` is exchanged for; of the busy thread
    cdef bint replay               # messages are still delivered at their original intervals
    cdef uint64_t replay_end       # that ends behind this stream sequence
    cdef int64_t replay_ts         # time of the message delivered last, ns since 1970; 0: none
    cdef double tokens             # bytes that the rate limit allows now
    cdef int64_t tokens_at         # when `tokens` was updated, monotonic ns

    # -- lock held --
    # Fill `out` with a slice of messages, end requests, arm the timer. Returns a Gathered.
    cdef int gather(self, PollState *ps, int64_t wall) noexcept nogil
    # Is the consumer not paused, and has it a subscriber with room, or a request?
    cdef bint may_deliver(self, int64_t wall) noexcept nogil
    # Take the first message of the redelivery queue, and deliver it unless it has had its deliveries. Returns its
    # bytes, 0 when it is not delivered. Sets stop[0] when no request takes it, or it cannot be read now.
    cdef int64_t redeliver(self, PollState *ps, int64_t wall, int64_t npc, bint *stop) noexcept nogil
    # Look up the next messages, `most` at most. False when there is none.
    cdef bint look_ahead(self, PollState *ps, Lookahead *a, uint64_t most) noexcept nogil
    # Deliver last per subject: go on to the next sequence of the list, or end the first round.
    cdef void next_skipped(self) noexcept nogil
    # Do the rate limit or the replay hold the message back? Sets held_until.
    cdef bint held_back(self, PollState *ps, const StoreMsg *sm) noexcept nogil
    cdef void serve_again(self, WaitingRequest *wr) noexcept nogil
    # Put a message into `out`. dc: its number of deliveries; npc: messages still to be delivered after it. False when
    # no request takes it, or out of memory.
    cdef bint deliver_msg(self, PollState *ps, const StoreMsg *sm, uint64_t dc, int64_t npc,
                          int64_t wall) noexcept nogil
    # Tell a request that it has all its messages before its limit of bytes.
    cdef void batch_completed(self, WaitingRequest *wr, int64_t n, int64_t bytes) noexcept nogil
    cdef void note_delivery(self, PollState *ps, const StoreMsg *sm, uint64_t dc, int64_t wall,
                            int64_t size) noexcept nogil
    cdef bint need_flow_control(self, int64_t size) noexcept nogil
    cdef void send_flow_control(self, PollState *ps) noexcept nogil
    # Do what the deadlines that have passed ask for.
    cdef void timers_due(self, PollState *ps, int64_t wall) noexcept nogil
    # Arm the timer for the first deadline.
    cdef void arm_timer(self, PollState *ps, int64_t wall) noexcept nogil
    # Take a delivery back: the message that was sent to `dest` found no subscriber.
    cdef void did_not_deliver(self, PollState *ps, uint64_t sseq, const char *dest, size_t n) noexcept nogil
    # Deliver nothing for a while. Takes the lock.
    cdef void rest_after_failure(self, PollState *ps) noexcept nogil
    # The inactive threshold has passed: have the control plane delete the consumer, unless it is used.
    cdef void delete_not_active(self, int64_t now, int64_t wall) noexcept nogil
    # Begin or end the time of inactivity of a push consumer.
    cdef void update_delivery_interest(self, bint interest, int64_t now) noexcept nogil
    # Has the deliver subject a subscriber?
    cdef bint listened_to(self) noexcept nogil
    # -- no lock held --
    # Publish the messages of a queue. `done`: a sent message counts as acknowledged (ack policy none), so the stream
    # may remove it.
    cdef void send_all(self, PollState *ps, OutQ *q, bint done) noexcept nogil
