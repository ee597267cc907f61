"""The state of a consumer (consumer.go): its settings, its position in the stream, its counts, and its parts.

ConsumerState has the fields of all parts. The functions of a part are in a module of its own, and take a ConsumerState:
consumeracks, redelivery, removals, consumerpull, consumertimers, consumerdelivery. A part that needs nothing else has a
struct, and functions that take only that: Pending, WaitQueue, OutQ, FlowControl, Pin, Pace, SkipList. The one class
above, Consumer, has the calls of the control plane, which use all parts.

Lock: `lock`, above the store's (docs/locks.md). It is never held while messages are delivered or published, or the
stream is changed. `npc`, `npf` and `filter` are under the store's lock: a stream that stores or removes a message
counts it for each consumer that wants it, without the consumer's lock.

Times: `now` is monotonic, in ns, as PollState.now; `wall` is ns since 1970.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.net.pollstate cimport PollState
from gnats.core.subjects.notifications cimport Notification
from gnats.includes.pthread cimport pthread_mutex_t
from gnats.jetstream.consumer.acked cimport Acked
from gnats.jetstream.consumer.consumerentry cimport ConsumerEntry, ConsumerOutcome, SeqPair
from gnats.jetstream.consumer.flowcontrol cimport FlowControl
from gnats.jetstream.consumer.pacing cimport Pace
from gnats.jetstream.consumer.pending cimport DeliveredMsg, Pending, pending_first
from gnats.jetstream.consumer.pinning cimport Pin
from gnats.jetstream.consumer.proposals cimport Proposals
from gnats.jetstream.consumer.requests cimport WaitingRequest, WaitQueue
from gnats.jetstream.consumer.send_queue cimport OutQ
from gnats.jetstream.consumer.settings cimport ConsumerSettings
from gnats.jetstream.consumer.skiplist cimport SkipList
from gnats.jetstream.consumer.stored cimport StoredState
from gnats.jetstream.engine.barrier cimport StreamBase
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.engine.engine cimport Engine, JsTimer
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.store cimport MsgStore

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


cdef struct Notice:
    uint64_t sseq, dseq, deliveries
    int64_t ack_time           # ns from delivery to ack


cdef class ConsumerState(ConsumerBase)


# What changes of a consumer's stored state pass. A consumer that one server has has no log: `propose` applies the entry
# at once (gnats.jetstream.consumer.consumerlog). The lock is held.
cdef struct ConsumerLog:
    # Apply an entry by stored_apply(), and return its outcome. With replicas it is proposed to the others, too: the
    # answer to an acknowledgement, and a message to its client, leave when they are committed (`proposals`).
    ConsumerOutcome (*propose)(ConsumerState o, const ConsumerEntry *e, Acked *acked) noexcept nogil
    # Tell the other replicas of a pull request that waits, or that it does not wait any more. NULL: there are none.
    void (*tell)(ConsumerState o, WaitingRequest *wr, bint waits) noexcept nogil


cdef class ConsumerState(ConsumerBase):
    cdef const ConsumerLog *log
    cdef readonly StreamCore stream
    cdef readonly str name
    cdef readonly int64_t created      # ns since 1970
    cdef MsgStore store
    cdef Engine engine
    cdef bytes ack_prefix              # the prefix of the reply subjects of messages; owns the bytes of the next
    cdef const char *ack_prefix_p
    cdef size_t ack_prefix_n
    cdef pthread_mutex_t lock
    # -- of the control loop alone --
    cdef readonly object config        # the ConsumerConfig that applies
    cdef list subs                     # addresses of its Subscriptions
    cdef Notification *notification    # of interest in the deliver subject; NULL: none
    cdef tuple names                   # <stream>.<consumer> as reply subjects have it: version 1, version 2
    cdef bint reconciled               # restore() has changed the state that it was given
    cdef int64_t burst                 # bytes of the rate limit's burst where the stream has no max_msg_size
    cdef StreamBase raft               # its RaftNode; None: it has no replicas. Set once, before start()
    # -- under lock --
    cdef ConsumerSettings cfg
    cdef bint closed
    cdef bint started
    # The control loop has come round since start(), so the consumer's creator has its answer: it may deliver.
    cdef bint begun
    cdef uint64_t sseq                 # the next stream sequence to deliver
    cdef uint64_t dseq                 # the next consumer sequence
    cdef uint64_t adflr, asflr         # ack floors: consumer sequence, stream sequence
    cdef StoredState stored            # the log alone changes it
    cdef Proposals proposals
    cdef SkipList skips                # deliver last per subject
    cdef int64_t ldt, lat              # last delivery, last ack; ns since 1970, 0: none
    cdef OutQ out                      # gathered and not sent yet
    cdef Pace pace
    cdef bint dirty                    # the state has changed since it was written
    # -- under the store's lock --
    cdef int64_t npc                   # messages that are still to be delivered
    cdef uint64_t npf                  # npc counts messages up to this sequence
    cdef uint64_t counted_off          # the last removed message that was counted off
    cdef bint looks_ahead              # some messages are looked up and may be delivered: those below `ahead`
    cdef bint thinned                  # some message below `ahead` was removed while it was set
    # -- atomic --
    # The next message to look up. A removed message that is not below it is counted off at once: it cannot be pending.
    # One that is below it was delivered, or is seen by end_lookahead(). Changed under both locks.
    cdef uint64_t ahead
    cdef uint64_t low                  # no message below it is in `pending`, or will be; changed under `lock`
    # -- delivery --
    cdef uint8_t busy, again           # a thread is in run(); run() was called since that thread last looked. Atomic
    cdef OutQ spare                    # the empty queue that `out` is exchanged for; of the busy thread
    # A newly stored message would be delivered at once. Atomic: the consumer writes, the stream reads when it stores.
    cdef uint8_t hungry
    # -- push --
    cdef char *dsubj                   # deliver subject; under lock
    cdef size_t dsubj_n
    cdef bint active                   # the deliver subject has a subscriber; under lock
    cdef bint failed                   # a message sent to the deliver subject found no subscriber; under lock
    cdef uint8_t listeners             # the deliver subject has a subscriber; atomic: `notification` writes
    cdef uint8_t recheck               # the interest in the deliver subject has changed; atomic
    cdef FlowControl flow              # under lock
    # -- timers; deadlines are monotonic ns, 0: none; under lock --
    cdef JsTimer timer                 # armed for the first of the deadlines below
    cdef JsTimer kicker                # armed by kick(), from any thread
    cdef bint reserved                 # the engine's heap has room for both
    cdef int64_t armed                 # the deadline of `timer`
    cdef int64_t inactive_at           # check whether the consumer is still used
    cdef int64_t heartbeat_at          # send a heartbeat, from a push consumer that is idle
    cdef int64_t pause_at              # the pause is over
    cdef int64_t held_until            # deliver nothing before: rate limit, replay, or a retry
    cdef int64_t resting               # held_until, as rest_after_failure() set it last
    # -- pull; under lock --
    cdef WaitQueue waiting
    cdef int64_t looked_at             # when process_waiting() ran last, monotonic ns
    cdef Pin pin
    cdef bytes expires_text            # max_expires as errors show it; the control loop replaces it under the lock
    cdef const char *expires_text_p
    cdef bytes group_name              # the priority group, of which there is one at most; replaced likewise
    cdef const char *group             # NULL: no priority group
    cdef size_t group_n

    cdef void release_timers(self) noexcept


# Set where a new consumer begins. No lock is held. False when out of memory.
cdef bint select_starting_seq(ConsumerState o, int policy, uint64_t start_seq, int64_t start_time) noexcept nogil
# Begin anew at a stream sequence. The lock is held.
cdef void begin_at(ConsumerState o, uint64_t seq) noexcept nogil
# ConsumerType.stored.
cdef bint on_stored(ConsumerBase base, uint64_t seq) noexcept nogil
# Count anew the messages that are still to be delivered. The lock is held, the store's is not.
cdef void stream_num_pending(ConsumerState o) noexcept nogil

# -- propose an entry to the log; the lock is held --

# OP_DELIVERED, OP_ACKED, OP_WAITS. acked: as for stored_apply(). asked: a client has asked for it.
cdef ConsumerOutcome update_delivered(ConsumerState o, uint64_t dseq, uint64_t sseq, uint64_t dc, int64_t ts,
                                      int64_t wall) noexcept nogil
cdef ConsumerOutcome update_acks(ConsumerState o, int kind, uint64_t dseq, uint64_t sseq, int64_t wall,
                                 Acked *acked) noexcept nogil
cdef ConsumerOutcome restart_wait(ConsumerState o, uint64_t sseq, int64_t ts, bint asked) noexcept nogil
# OP_RETURNED or OP_FORGOTTEN.
cdef ConsumerOutcome propose_of(ConsumerState o, int op, uint64_t sseq) noexcept nogil
# OP_MOVED or OP_RESET, to the position that the consumer has now.
cdef ConsumerOutcome propose_position(ConsumerState o, int op) noexcept nogil

# -- the rest --

# Have the control loop write the state, if the consumer has files. The lock is held.
cdef void mark_dirty(ConsumerState o) noexcept nogil
# Post a ConsumerEvent to the control plane. False when out of memory.
cdef bint notify(ConsumerState o, int what, uint64_t sseq, uint64_t dseq, uint64_t deliveries, int64_t ack_time,
                 const char *text, size_t n) noexcept nogil
# Postpone the deletion of an inactive consumer, after activity. The lock is held.
cdef void suppress_deletion(ConsumerState o, int64_t now) noexcept nogil
# Have the calling poller deliver at the end of its batch.
cdef void wake(ConsumerState o, PollState *ps) noexcept nogil
# Have the group take what was proposed at the end of the calling poller's batch. The lock is not held.
cdef void hand_over(ConsumerState o, PollState *ps) noexcept nogil
# Have the control loop deliver, and hand over. Any thread; needs no memory.
cdef void kick(ConsumerState o) noexcept nogil
# ConsumerType.kick.
cdef void on_kick(ConsumerBase base) noexcept nogil


cdef inline int64_t num_pending(ConsumerState o) noexcept nogil:
    """Return the number of messages still to be delivered. The store's lock is held."""
    return o.npc if o.npc > 0 else 0


cdef inline bint waits_for_quorum(ConsumerState o) noexcept nogil:
    """Return whether something that was proposed is not committed yet."""
    return o.proposals.n != o.proposals.committed


cdef inline uint64_t lowest_pending(ConsumerState o) noexcept nogil:
    """The least sequence that is pending or may be next, or `low` where that takes a search. The lock is held."""
    cdef const DeliveredMsg *e = pending_first(&o.stored.pending)
    if o.stored.pending.nredelivered:
        return o.low   # a message that had its deliveries may be below the first
    return min(e.seq, o.sseq) if e != NULL else o.sseq
