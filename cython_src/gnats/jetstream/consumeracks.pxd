"""What a consumer does with acknowledgements, and with those that do not come (consumer.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.pollstate cimport PollState
from gnats.core.slice cimport Slice
from gnats.jetstream.consumerstate cimport ConsumerState
from gnats.jetstream.pending cimport Entry


# Sequences that the stream is to be told of, when the lock has been released.
cdef struct Acked:
    uint64_t *seqs
    size_t n, cap
    uint64_t few[8]


cdef class ConsumerAcks(ConsumerState):
    # An acknowledgement has come on `subject`. No lock is held.
    cdef void process_ack(self, PollState *ps, const Slice *subject, const Slice *reply, const char *msg,
                          size_t n) noexcept nogil
    # -- lock held --
    # Whether it is to be answered. signal[0] is set when there is room again for what waits to be delivered. It may be
    # sampled, with the random numbers of the calling poller; sampler is NULL for what is no client's ack.
    cdef bint process_ack_msg(self, PollState *sampler, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall,
                              Acked *acked, bint *signal) noexcept nogil
    # True when there is something to deliver again at once.
    cdef bint process_nak(self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *rest,
                          size_t n) noexcept nogil
    cdef void progress_update(self, uint64_t sseq, int64_t wall) noexcept nogil
    cdef bint process_term(self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *reason, size_t n,
                           Acked *acked, bint *signal) noexcept nogil
    # The same of a message that has gone from the stream.
    cdef void process_deleted(self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, Acked *acked,
                              bint *signal) noexcept nogil
    cdef void move_ack_floor(self, uint64_t dseq, uint64_t sseq) noexcept nogil
    # Has the message been delivered as often as it may be? It is not pending any more then.
    cdef bint has_max_deliveries(self, uint64_t sseq, int64_t wall) noexcept nogil
    # The ack wait of some is over: into the redelivery queue with them. True when there is something in it.
    cdef bint check_pending(self, int64_t wall) noexcept nogil
    cdef int64_t next_deadline(self, int64_t start, const Entry *e) noexcept nogil
    cdef bint expire_entries(self, uint64_t *seqs, size_t n, int64_t wall) noexcept nogil
    cdef void force_expire_pending(self, int64_t wall) noexcept nogil
    cdef void sample_ack(self, PollState *sampler, const Entry *e, uint64_t sseq, uint64_t dseq,
                         uint64_t dc) noexcept nogil
    cdef bint is_equal_or_subset_match(self, const char *subject, uint32_t n) noexcept nogil
    cdef void purge(self, uint64_t first, bint wider) noexcept nogil
    # -- no lock held --
    cdef void tell_stream(self, PollState *ps, Acked *acked) noexcept nogil
    # There was activity that keeps the consumer alive; lock held.
    cdef void suppress_deletion(self, int64_t now) noexcept nogil
    # of the class below: +NXT asks for more. False: the consumer is closed.
    cdef bint process_next_msg_request(self, PollState *ps, const char *reply, size_t rn, const char *msg,
                                       size_t n) noexcept nogil
