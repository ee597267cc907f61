"""How a consumer delivers (loopAndGatherMsgs of consumer.go).

run() *gathers* a slice of what is to be delivered, under the lock, and sends it without. One thread at a time does so:
another one that comes meanwhile has the first go round once more.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.pollstate cimport PollState
from gnats.jetstream.consumerpull cimport ConsumerPull
from gnats.jetstream.outq cimport OutQ
from gnats.jetstream.requests cimport WaitingRequest
from gnats.store.base cimport StoreMsg

cdef enum:
    AHEAD = 32         # messages that are looked up under the store's lock at once

cdef enum Gathered:
    GATHER_WAIT        # there is nothing to do until something happens
    GATHER_MORE        # there may be more
    GATHER_HELD        # nothing before held_until


# Messages that have been looked up and come next, unless it is another one's turn.
cdef struct Lookahead:
    StoreMsg msgs[AHEAD]
    uint32_t at, n
    bint end           # there is none behind them
    uint64_t end_seq   # the last sequence of the stream then
    int64_t npc        # pending, those that were looked up included


cdef class ConsumerDelivery(ConsumerPull):
    cdef uint8_t busy, again       # atomic
    cdef bint failed               # a delivery of ours was not taken; under lock
    cdef OutQ spare                # what `out` is exchanged for; of whom is busy
    cdef bint replay               # not caught up yet
    cdef uint64_t replay_end
    cdef int64_t replay_ts         # of the message delivered last; 0: none
    cdef double tokens             # of the rate limit, in bytes
    cdef int64_t tokens_at

    # -- lock held --
    cdef int gather(self, PollState *ps, int64_t wall) noexcept nogil
    cdef bint may_deliver(self, int64_t wall) noexcept nogil
    cdef int64_t redeliver(self, PollState *ps, int64_t wall, int64_t npc, bint *stop) noexcept nogil
    cdef bint look_ahead(self, PollState *ps, Lookahead *a, uint64_t most) noexcept nogil
    cdef void next_skipped(self) noexcept nogil
    cdef bint held_back(self, PollState *ps, const StoreMsg *sm) noexcept nogil
    # Put a message into the queue; False when there is nobody for it, or no memory.
    cdef bint deliver_msg(self, PollState *ps, const StoreMsg *sm, uint64_t dc, int64_t npc,
                          int64_t wall) noexcept nogil
    cdef void batch_completed(self, WaitingRequest *wr, int64_t n, int64_t bytes) noexcept nogil
    cdef void note_delivery(self, PollState *ps, const StoreMsg *sm, uint64_t dc, int64_t wall,
                            int64_t size) noexcept nogil
    cdef bint need_flow_control(self, int64_t size) noexcept nogil
    cdef void send_flow_control(self, PollState *ps) noexcept nogil
    cdef void timers_due(self, PollState *ps, int64_t wall) noexcept nogil
    cdef void arm_timer(self, PollState *ps, int64_t wall) noexcept nogil
    cdef void did_not_deliver(self, PollState *ps, uint64_t sseq, const char *dest, size_t n) noexcept nogil
    # of the class below: it has not been used for as long as it may
    cdef void delete_not_active(self, int64_t now, int64_t wall) noexcept nogil
    cdef void update_delivery_interest(self, bint interest, int64_t now) noexcept nogil
    cdef bint listened_to(self) noexcept nogil
    # -- no lock held --
    # `done`: who has been sent a message needs it no more.
    cdef void send_all(self, PollState *ps, OutQ *q, bint done) noexcept nogil
