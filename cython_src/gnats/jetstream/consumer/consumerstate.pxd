"""The state of a consumer (consumer.go): its settings, its position in the stream, its counts.

Lock: `lock`, above the store's (docs/locks.md). It is never held while messages are delivered or published, or the
stream is changed. `npc`, `npf` and `filter` are under the store's lock: a stream that stores a message counts it for
each consumer that wants it, without the consumer's lock.

Times: `now` is monotonic, in ns, as PollState.now; `wall` is ns since 1970.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.includes.pthread cimport pthread_mutex_t
from gnats.jetstream.consumer.pending cimport Entry, Pending
from gnats.jetstream.consumer.requests cimport WaitQueue
from gnats.jetstream.consumer.send_queue cimport OutQ
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.engine.engine cimport Engine, JsTimer
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.store cimport MsgStore

cdef enum AckPolicy:
    POLICY_NONE = 0
    POLICY_ALL = 1
    POLICY_EXPLICIT = 2
    POLICY_FLOW_CONTROL = 3    # acknowledged by the answers to flow control

cdef enum DeliverPolicy:
    DELIVER_ALL, DELIVER_LAST, DELIVER_LAST_PER_SUBJECT, DELIVER_NEW, DELIVER_BY_START_SEQUENCE, DELIVER_BY_START_TIME

cdef enum PriorityPolicy:
    PRIORITY_NONE = 0
    PRIORITY_OVERFLOW = 1
    PRIORITY_PINNED = 2
    PRIORITY_PRIORITIZED = 3

cpdef enum ConsumerEvent:
    # `a` of an EV_JETSTREAM event that a consumer posts to the control plane; data: a Notice, then a text
    CONSUMER_ACKED = 1         # an ack that was sampled: ack_time is set
    CONSUMER_NAKED = 2
    CONSUMER_TERMINATED = 3    # text: the reason
    CONSUMER_MAX_DELIVERIES = 4
    CONSUMER_INACTIVE = 5      # delete it: it was unused for its inactive threshold
    CONSUMER_PINNED = 6        # text: the pin
    CONSUMER_UNPINNED = 7      # the pin's time is over
    CONSUMER_UNPAUSED = 8
    CONSUMER_DIRTY = 9         # write its state
    CONSUMER_BAD_NAK = 10      # text: the delay that could not be parsed
    CONSUMER_ACK_BEYOND = 11   # an ack of a sequence above the stream's last

cdef enum:
    PIN_N = 22                 # characters of a pin
    FC_MAX = 32 * 1024 * 1024  # the most bytes under way with flow control; a consumer starts with a 16th
    ACK_DELAY = 1000000        # ns by which the timer of ack waits is late, so that it serves several at once


cdef struct Notice:
    uint64_t sseq, dseq, deliveries
    int64_t ack_time           # ns from delivery to ack


# A consumer sequence and the stream sequence that belongs to it.
cdef struct SeqPair:
    uint64_t consumer, stream


# The configuration, for the data plane. Durations are ns; a setting that does not apply is 0.
cdef struct ConsumerSettings:
    uint8_t ack_policy, priority_policy
    uint8_t push               # it has a deliver subject
    uint8_t replay_original, flow_control, headers_only, direct, last_per_subject, memory
    uint8_t retention          # the stream's (Retention)
    int64_t ack_wait
    int64_t *backoff           # nbackoff durations, owned
    uint32_t nbackoff
    uint32_t sample            # percent of acks that are reported
    uint64_t max_deliver
    uint64_t max_ack_pending
    uint32_t max_waiting
    int64_t max_batch, max_expires, max_bytes
    int64_t heartbeat
    int64_t inactive           # inactive threshold, jitter included
    int64_t pinned_ttl
    int64_t pause_until        # ns since 1970
    double rate                # bytes a second
    double burst               # bytes


cdef enum ConsumerOp:
    OP_DELIVERED = 0
    OP_ACKED = 1


# An entry of a consumer's log: a delivery, or an acknowledgement.
cdef struct ConsumerEntry:
    uint8_t op                 # a ConsumerOp
    uint8_t was_pending        # OP_ACKED: the message was pending
    uint64_t dseq, sseq        # consumer sequence, stream sequence
    uint64_t dc                # OP_DELIVERED: the number of deliveries, this one included
    int64_t ts                 # OP_DELIVERED: when its ack wait begins, ns since 1970


cdef class ConsumerState(ConsumerBase)


# The log that changes of a consumer's stored state pass: see gnats.jetstream.consumer.consumerlog. The lock is held.
cdef struct ConsumerLog:
    void (*propose)(ConsumerState o, const ConsumerEntry *e) noexcept nogil


cdef class ConsumerState(ConsumerBase):
    cdef const ConsumerLog *log
    cdef readonly StreamCore stream
    cdef readonly str name
    cdef readonly int64_t created      # ns since 1970
    cdef MsgStore store
    cdef Engine engine
    # The prefix of the reply subjects of messages; that of flow control, with its final dot. These bytes own the two
    # pointers below.
    cdef bytes ack_prefix, fc_prefix
    cdef const char *ack_prefix_p
    cdef const char *fc_prefix_p
    cdef size_t ack_prefix_n, fc_prefix_n
    cdef pthread_mutex_t lock
    # -- under lock --
    cdef ConsumerSettings cfg
    cdef bint closed
    cdef bint started
    # The control loop has come round since start(), so the consumer's creator has its answer: it may deliver.
    cdef bint begun
    cdef uint64_t sseq                 # the next stream sequence to deliver
    cdef uint64_t dseq                 # the next consumer sequence
    cdef uint64_t adflr, asflr         # ack floors: consumer sequence, stream sequence
    cdef SeqPair delivered, floor      # of the stored state: last delivery, ack floor; skipped messages do not count
    cdef Pending pending
    cdef uint64_t *skip_list           # deliver last per subject: the sequences of the first round, skip_n of them
    cdef size_t skip_at, skip_n        # skip_at: the next one
    cdef uint64_t skip_resume          # after that round it goes on behind this sequence
    cdef int64_t ldt, lat              # last delivery, last ack; ns since 1970, 0: none
    cdef OutQ out                      # gathered and not sent yet
    cdef bint dirty                    # the state has changed since it was written
    # -- under the store's lock --
    cdef int64_t npc                   # messages that are still to be delivered
    cdef uint64_t npf                  # npc counts messages up to this sequence
    # -- push --
    cdef char *dsubj                   # deliver subject; under lock
    cdef size_t dsubj_n
    cdef bint active                   # the deliver subject has a subscriber; under lock
    cdef uint8_t recheck               # the interest in the deliver subject has changed; atomic
    cdef int64_t maxpb, pblimit        # flow control: the most bytes under way, now and ever; 0: none; under lock
    cdef int64_t pbytes, fcsz          # bytes under way; how many of them the answer to the flow control takes off
    cdef char *fcid                    # the reply subject of the flow control that is unanswered, fc_prefix_n + 4 bytes
    cdef size_t fcid_n
    # -- timers; deadlines are monotonic ns, 0: none; under lock --
    cdef JsTimer timer                 # armed for the first of the deadlines below
    cdef JsTimer kicker                # armed by kick(), from any thread
    cdef bint reserved                 # the engine's heap has room for both
    cdef int64_t armed                 # the deadline of `timer`
    cdef int64_t inactive_at           # check whether the consumer is still used
    cdef int64_t heartbeat_at          # send a heartbeat, from a push consumer that is idle
    cdef int64_t pinned_at             # the pin's time is over
    cdef int64_t pause_at              # the pause is over
    cdef int64_t held_until            # deliver nothing before: rate limit, replay, or a retry
    cdef int64_t resting               # held_until, as rest_after_failure() set it last
    # -- pull --
    cdef WaitQueue waiting             # under lock
    cdef char[PIN_N] pin               # under lock
    cdef bint pinned                   # a client has the pin
    cdef int64_t pinned_ts             # ns since 1970
    # A newly stored message would be delivered at once. Atomic: the consumer writes, the stream reads when it stores.
    cdef uint8_t hungry

    cdef void release_timers(self) noexcept
    # Messages still to be delivered. The store's lock is held.
    cdef int64_t num_pending(self) noexcept nogil
    # Count the messages to be delivered anew. The lock is held, the store's is not.
    cdef void stream_num_pending(self) noexcept nogil
    # Set where a new consumer begins. No lock is held. False when out of memory.
    cdef bint select_starting_seq(self, int policy, uint64_t start_seq, int64_t start_time) noexcept nogil
    # Are messages delivered again when no acknowledgement comes?
    cdef bint has_ack_wait(self) noexcept nogil
    # The ack wait, ns, of a message with `rdc` redeliveries.
    cdef int64_t wait_of(self, int64_t rdc) noexcept nogil
    # Have the control loop write the state, if the consumer has files. The lock is held.
    cdef void mark_dirty(self) noexcept nogil
    # Have the log store a delivery, the dc-th, or an ack. was_pending: the acked message was pending. The caller has
    # updated `pending` (updateDelivered, updateAcks). The lock is held.
    cdef void update_delivered(self, uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts, int64_t wall) noexcept nogil
    cdef void update_acks(self, uint64_t dseq, uint64_t sseq, bint was_pending, int64_t wall) noexcept nogil
    # Post a ConsumerEvent to the control plane. False when out of memory.
    cdef bint notify(self, int what, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t ack_time,
                     const char *text, size_t n) noexcept nogil
    # Postpone the deletion of an inactive consumer, after activity. The lock is held.
    cdef void suppress_deletion(self, int64_t now) noexcept nogil
    # Have the calling poller call run() at the end of its batch.
    cdef void wake(self, PollState *ps) noexcept nogil
