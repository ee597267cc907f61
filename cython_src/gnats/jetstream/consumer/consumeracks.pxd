"""Handle a consumer's acknowledgements, and messages whose ack wait ends without one (consumer.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.jetstream.consumer.consumerstate cimport ConsumerState
from gnats.jetstream.consumer.pending cimport Entry


# Acknowledged stream sequences, which tell_stream() gives to the stream after the lock is released.
cdef struct Acked:
    uint64_t *seqs
    size_t n, cap
    uint64_t few[8]


cdef class ConsumerAcks(ConsumerState):
    # Handle an acknowledgement that was published to `subject`. No lock is held.
    cdef void process_ack(self, PollState *ps, const Slice *subject, const Slice *reply, const char *msg,
                          size_t n) noexcept nogil
    # -- lock held --
    # Acknowledge a message. Returns whether to answer. Sets signal[0] when max_ack_pending held deliveries back until
    # now. sampler: the calling poller, for the random numbers of sampling; NULL: not a client's ack, not sampled.
    cdef bint process_ack_msg(self, PollState *sampler, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall,
                              Acked *acked, bint *signal) noexcept nogil
    # -NAK. Returns True when run() is to be called: to deliver the message again, or to arm the timer for its delay.
    cdef bint process_nak(self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *rest,
                          size_t n) noexcept nogil
    # +WPI: begin the message's ack wait anew.
    cdef void progress_update(self, uint64_t sseq, int64_t wall) noexcept nogil
    # +TERM: acknowledge the message and post CONSUMER_TERMINATED. Returns whether to answer.
    cdef bint process_term(self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, const char *reason, size_t n,
                           Acked *acked, bint *signal) noexcept nogil
    # Terminate a message that was removed from the stream.
    cdef void process_deleted(self, uint64_t sseq, uint64_t dseq, uint64_t dc, int64_t wall, Acked *acked,
                              bint *signal) noexcept nogil
    # Raise the ack floors after a message, no longer pending, was acknowledged.
    cdef void move_ack_floor(self, uint64_t dseq, uint64_t sseq) noexcept nogil
    # Has the message had max_deliver deliveries? If so, it is not pending any more.
    cdef bint has_max_deliveries(self, uint64_t sseq, int64_t wall) noexcept nogil
    # Queue the messages whose ack wait is over for redelivery. True when the redelivery queue is not empty.
    cdef bint check_pending(self, int64_t wall) noexcept nogil
    # When an ack wait ends that begins at `start`, ns since 1970; at least MIN_WAIT later.
    cdef int64_t next_deadline(self, int64_t start, const Entry *e) noexcept nogil
    # Queue pending messages for redelivery, in the order of the stream. Sorts seqs. False when n is 0.
    cdef bint expire_entries(self, uint64_t *seqs, size_t n, int64_t wall) noexcept nogil
    # Queue all pending messages for redelivery, for a new deliver subject.
    cdef void force_expire_pending(self, int64_t wall) noexcept nogil
    cdef void sample_ack(self, PollState *sampler, const Entry *e, uint64_t sseq, uint64_t dseq,
                         uint64_t dc) noexcept nogil
    # Does the subject, which may have wildcards, cover all of the filters? False without a filter.
    cdef bint is_equal_or_subset_match(self, const char *subject, uint32_t n) noexcept nogil
    # Forget messages that a purge has removed: those below `first`. wider: the filters are wider than the purged
    # subject, so look up each message that is still pending as well.
    cdef void purge(self, uint64_t first, bint wider) noexcept nogil
    # -- no lock held --
    # Call ack_msg() for each sequence, and free them.
    cdef void tell_stream(self, PollState *ps, Acked *acked) noexcept nogil
    # -- ConsumerPull implements this --
    # Queue a pull request, from a client or an ack with +NXT. False when the consumer is closed. No lock is held.
    cdef bint process_next_msg_request(self, PollState *ps, const char *reply, size_t rn, const char *msg,
                                       size_t n) noexcept nogil
