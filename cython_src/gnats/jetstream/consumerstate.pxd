"""What a consumer is made of (consumer.go): its settings, where it is in its stream, what it counts.

Lock: `lock`, above the store's (docs/locks.md). It is never held while something is delivered, published, or done to
the stream. `npc`, `npf` and `filter` are under the store's lock as well: the stream counts a message for each of its
consumers that wants it as it stores it.

Times: `now` is monotonic, in ns, as PollState.now; `wall` is ns since 1970.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.pollstate cimport PollState
from gnats.core.watches cimport Watch
from gnats.includes.pthread cimport pthread_mutex_t
from gnats.jetstream.engine cimport Engine, JsTimer
from gnats.jetstream.observer cimport Observer
from gnats.jetstream.outq cimport OutQ
from gnats.jetstream.pending cimport Entry, Pending
from gnats.jetstream.requests cimport WaitQueue
from gnats.jetstream.streamcore cimport StreamCore
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
    # what a consumer tells the control plane: `a` of an EV_JETSTREAM, whose data is a Notice, and a text behind it
    CONSUMER_ACKED = 1         # a sample: ack_time is set
    CONSUMER_NAKED = 2
    CONSUMER_TERMINATED = 3    # text: the reason
    CONSUMER_MAX_DELIVERIES = 4
    CONSUMER_INACTIVE = 5      # to be deleted
    CONSUMER_PINNED = 6        # text: the pin
    CONSUMER_UNPINNED = 7      # the pin's time is over
    CONSUMER_UNPAUSED = 8
    CONSUMER_DIRTY = 9         # its state is to be written
    CONSUMER_BAD_NAK = 10      # text: the delay that could not be read
    CONSUMER_ACK_BEYOND = 11   # an ack of a message behind the last of the stream

cdef enum:
    PIN_N = 22                 # characters of a pin
    FC_MAX = 32 * 1024 * 1024  # bytes that may be under way with flow control; it begins with a 16th
    ACK_DELAY = 1000000        # ns that a timer waits for more acks to become due


cdef struct Notice:
    uint64_t sseq, dseq, deliveries
    int64_t ack_time           # ns


cdef struct SeqPair:
    uint64_t consumer, stream


# What its configuration means. Durations in ns; what does not apply is 0.
cdef struct ConsumerSettings:
    uint8_t ack_policy, priority_policy
    uint8_t push               # it has a deliver subject
    uint8_t replay_original, flow_control, headers_only, direct, last_per_subject, memory
    uint8_t retention          # the stream's
    int64_t ack_wait
    int64_t *backoff           # nbackoff of them
    uint32_t nbackoff
    uint32_t sample            # percent of acks
    uint64_t max_deliver
    uint64_t max_ack_pending
    uint32_t max_waiting
    int64_t max_batch, max_expires, max_bytes
    int64_t heartbeat
    int64_t inactive           # with its jitter
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
    uint8_t was_pending        # acked: the message was
    uint64_t dseq, sseq        # of the consumer, of the stream
    uint64_t dc                # delivered: how often it has been
    int64_t ts                 # delivered: its ack wait is counted from here, ns since 1970


cdef class ConsumerState(Observer)


# What the changes of a consumer's stored state go through: see gnats.jetstream.consumerlog. The lock is held.
cdef struct ConsumerLog:
    void (*propose)(ConsumerState o, const ConsumerEntry *e) noexcept nogil


cdef class ConsumerState(Observer):
    cdef const ConsumerLog *log
    cdef readonly StreamCore stream
    cdef readonly str name
    cdef readonly int64_t created      # ns since 1970
    cdef MsgStore store
    cdef Engine engine
    cdef bytes ack_prefix, fc_prefix   # of reply subjects, and of those of flow control with a dot behind
    cdef const char *ack_prefix_p
    cdef const char *fc_prefix_p
    cdef size_t ack_prefix_n, fc_prefix_n
    cdef pthread_mutex_t lock
    # -- under lock --
    cdef ConsumerSettings cfg
    cdef bint closed
    cdef bint started
    # The control loop has come round since start(), so whoever had it made is answered: it may deliver.
    cdef bint begun
    cdef uint64_t sseq                 # the next stream sequence
    cdef uint64_t dseq                 # the next consumer sequence
    cdef uint64_t adflr, asflr         # ack floors
    cdef SeqPair delivered, floor      # as the stored state has them: what was skipped does not count
    cdef Pending pending
    cdef uint64_t *skip_list           # deliver last per subject: what is left of the first round
    cdef size_t skip_at, skip_n
    cdef uint64_t skip_resume
    cdef int64_t ldt, lat              # last delivery, last ack; ns since 1970, 0: none
    cdef OutQ out
    cdef bint dirty                    # the state has changed since it was written
    # -- under the store's lock --
    cdef int64_t npc                   # messages that are pending for delivery
    cdef uint64_t npf                  # up to this sequence they are counted
    # -- push --
    cdef char *dsubj                   # where it delivers; under lock
    cdef size_t dsubj_n
    cdef bint active                   # somebody listens there; under lock
    cdef uint8_t recheck               # who listens there has changed; atomic
    cdef int64_t maxpb, pblimit        # flow control: bytes under way, at most now and ever; 0: none; under lock
    cdef int64_t pbytes, fcsz
    cdef char *fcid                    # the reply subject that is waited for, fc_prefix_n + 4 bytes
    cdef size_t fcid_n
    # -- timers, monotonic ns; under lock --
    cdef JsTimer timer                 # all of them, the first that is due
    cdef JsTimer kicker                # set off from any thread, by kick()
    cdef bint reserved                 # room for the two in the engine
    cdef int64_t armed                 # when `timer` goes off, 0: it does not
    cdef int64_t inactive_at           # when to look whether the consumer is still used, 0: not
    cdef int64_t heartbeat_at          # of a push consumer that is idle
    cdef int64_t pinned_at             # the pin's time is over
    cdef int64_t pause_at              # the pause is over
    cdef int64_t held_until            # nothing is delivered before: rate limit, replay
    # -- pull --
    cdef WaitQueue waiting             # under lock
    cdef char[PIN_N] pin               # under lock
    cdef bint pinned
    cdef int64_t pinned_ts             # ns since 1970
    # Something stored would be delivered: read by the stream under the store's lock; atomic
    cdef uint8_t hungry

    cdef void release_timers(self) noexcept
    cdef int64_t num_pending(self) noexcept nogil         # the store's lock is held
    # Count what is pending for delivery anew. Lock held, not the store's.
    cdef void stream_num_pending(self) noexcept nogil
    # For a new consumer: where it begins. No lock is held. False when out of memory.
    cdef bint select_starting_seq(self, int policy, uint64_t start_seq, int64_t start_time) noexcept nogil
    # Is what is not acknowledged delivered again after a while?
    cdef bint has_ack_wait(self) noexcept nogil
    # How long until a message, if it is delivered now, is due again.
    cdef int64_t wait_of(self, int64_t rdc) noexcept nogil
    cdef void mark_dirty(self) noexcept nogil
    # Have the log store a delivery, the dc-th; an ack. was_pending: of a message that was. The pending messages have
    # been changed (updateDelivered, updateAcks).
    cdef void update_delivered(self, uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts, int64_t wall) noexcept nogil
    cdef void update_acks(self, uint64_t dseq, uint64_t sseq, bint was_pending, int64_t wall) noexcept nogil
    cdef void notify(self, int what, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t ack_time,
                     const char *text, size_t n) noexcept nogil
    # Have run() called: by the calling poller at the end of its batch; or, from any thread and with any lock held, by
    # the control loop.
    cdef void wake(self, PollState *ps) noexcept nogil
    cdef void kick(self) noexcept nogil
