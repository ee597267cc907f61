"""The state of a stream (stream.go): its settings, store and consumers, and the steps around each change of the store.

Lock: the stream uses its store's lock, "the lock" below. Bracket each change of the store with enter() and leave().
leave() counts the bytes that the stream now uses, unlocks, and only then notifies consumers of the removed messages
that they may have delivered.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.internal cimport InternalSubscriber
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.transform cimport Transform
from gnats.jetstream.engine.barrier cimport JsPoller, StreamBase
from gnats.jetstream.engine.engine cimport Engine, JsTimer
from gnats.jetstream.engine.usage cimport Usage
from gnats.jetstream.state.batchtable cimport BatchLimits, BatchTable
from gnats.jetstream.state.consumerlist cimport ConsumerList
from gnats.jetstream.state.dedupe cimport Dedupe
from gnats.jetstream.state.entry cimport Outcome, StreamChange, StreamEntry
from gnats.store.index.filter cimport Filter
from gnats.store.removing cimport Purge
from gnats.store.store cimport MsgStore

cdef enum Retention:
    LIMITS_POLICY = 0
    INTEREST_POLICY = 1
    WORK_QUEUE_POLICY = 2


# The part of the configuration that messages need. Under the lock.
cdef struct StreamSettings:
    uint8_t no_ack, sealed, deny_purge, allow_rollup, allow_ttl, allow_counter, allow_schedules
    uint8_t allow_atomic, allow_batched, allow_direct, discard_new, discard_new_per, mirror, memory
    uint8_t republish_headers_only
    uint8_t retention
    int32_t max_msg_size         # bytes, header and payload; -1: unlimited
    int64_t max_msgs, max_bytes, max_msgs_per
    int64_t duplicates           # the duplicate window, ns; 0: no duplicates are looked for
    int64_t marker_ttl           # TTL of subject delete markers, seconds; 0: no markers


# Removals of messages that may be pending, and purges, of which leave() notifies the consumers. Each record: a sequence
# (0: the subject was purged), the length of the subject, the subject.
cdef struct Removals:
    char *p
    size_t n                     # bytes used
    size_t cap
    uint8_t many                 # further messages were removed that have no record


cdef class StreamCore(StreamBase)


# What a stream's entries pass before they are stored. On a single server there is no log: `propose` stores the entries
# at once (gnats.jetstream.stream.streamlog). That of a replicated stream is gnats.jetstream.replica.streamreplica. The
# lock is held.
cdef struct StreamLog:
    # Have an entry, and the entries linked to it, stored by store_entries(), whose outcome it returns. MSG_STORED from
    # a log that waits for other servers says that the log has the entries.
    Outcome (*propose)(StreamCore s, JsPoller *jp, StreamEntry *e) noexcept nogil
    # Have another change made by apply_change(). Return its result, a StoreError. STORE_AGAIN: free the lock for a
    # moment, then call again with the same arguments.
    int (*change)(StreamCore s, const StreamChange *c, Purge *part) noexcept nogil
    # Have the sequences up to `last` left out: those behind the last message, and behind those in flight. Return a
    # StoreError. jp may be NULL.
    int (*skip)(StreamCore s, JsPoller *jp, uint64_t last) noexcept nogil
    # Have a header published to `reply` when all that was proposed before is stored.
    void (*confirm)(StreamCore s, JsPoller *jp, const Slice *reply, const char *hdr, size_t n) noexcept nogil
    # Have an expired message removed, of a stream with delete markers. False: another server decides about that.
    bint (*expire)(StreamCore s, JsPoller *jp, uint64_t seq) noexcept nogil
    # Have a message removed that no consumer needs. Return whether it is gone when this returns. No lock is held.
    bint (*drop)(StreamCore s, uint64_t seq, PollState *ps) noexcept nogil


cdef class StreamCore(StreamBase):
    cdef const StreamLog *log
    cdef void *log_owner                   # borrowed; the log's
    # The log's: an InFlight (publish/inflight), the messages that it has and has not stored. NULL: it stores at once.
    cdef const void *in_flight
    cdef readonly Engine engine
    cdef readonly MsgStore store
    cdef readonly str name
    cdef readonly InternalSubscriber client    # owns the stream's subscriptions, in its account
    cdef readonly Usage account_usage, server_usage    # None: not counted
    cdef ConsumerList consumer_list
    cdef list keep                         # keeps the account and the engine alive
    cdef bytes name_bytes, ack_start, error_tail    # own the bytes of name_p, pub_ack and error_end
    cdef const char *name_p
    cdef size_t name_n
    cdef uint64_t max_direct               # bytes that one direct get answers with unless it asks for less
    cdef size_t max_payload                # the server's, bytes: a counter's message may not be larger
    cdef readonly BatchLimits batch_limits  # the server's
    # under the lock
    cdef StreamSettings cfg
    cdef const char *pub_ack               # the JSON of a reply, up to the sequence
    cdef size_t pub_ack_n
    cdef const char *error_end             # the JSON that ends a reply with an error
    cdef size_t error_end_n
    cdef Transform *itr                    # transform of the subjects of incoming messages; NULL for none
    cdef Transform *tr                     # where stored messages are republished; NULL: nowhere
    cdef Filter *schedule_subjects         # the stream's subjects if it allows schedules, else NULL
    cdef bint active                       # subscribed to its subjects
    cdef bint decides                      # this server decides which messages no consumer needs
    cdef bint closed
    cdef Dedupe dedupe
    cdef char *last_msg_id
    cdef size_t last_msg_id_n, last_msg_id_cap
    cdef BatchTable atomic_batches, fast_batches    # the open ones
    cdef size_t batch_bytes                # of messages that wait for the commit of their atomic batch
    cdef bint batch_timer_set, dedupe_timer_set
    cdef int64_t accounted                 # the part of store.bytes that the usages include
    cdef Removals removals
    # atomic
    cdef uint32_t advisories               # advisories about atomic batches that the control loop has yet to publish
    # timers; armed under the lock
    cdef JsTimer dedupe_timer, expiry_timer, batch_timer, schedule_timer
    cdef bint reserved                     # the engine's heap has room for the four timers
    cdef uint64_t aged_seq                 # the last sequence when expiry_timer last fired; under the lock
    cdef int64_t expires_at                # when expiry_timer fires, ns since 1970; 0: not armed
    cdef int64_t schedules_at              # the same for schedule_timer
    cdef uint64_t rollups_from             # the first message whose rollup waits (stream/rollups); 0: none does

    cdef int reserve_timers(self) except -1
    cdef void release_timers(self) noexcept
    # Take the lock.
    cdef void enter(self) noexcept nogil
    # Unlock, then notify consumers of removed messages. The calling thread is online. The store is flushed at
    # the end of the poller's batch; at once when ps is NULL.
    cdef void leave(self, PollState *ps) noexcept nogil
    # Remove a message that a consumer needs no more, unless another consumer needs it (ackMsg). Remove none with the
    # limits policy, nor where another server decides about that. Return whether this call removed it. No lock is held;
    # the thread is online.
    cdef bint ack_msg(self, uint64_t seq, PollState *ps) noexcept nogil
    # Notify consumers of the records p[0:n] of a Removals. No lock is held; the thread is online.
    cdef void notify_removed(self, const char *p, size_t n) noexcept nogil
    # Notify consumers of a purge of `subject` (n == 0: of everything). No lock is held; the thread is online.
    cdef void notify_purged(self, const char *subject, size_t n) noexcept nogil
    # Acknowledge no further message, and post STREAM_FAILED: the store has failed with `error`, a -errno. The first
    # error stays.
    cdef void fail(self, int error) noexcept nogil
    # Remember an id for the duplicate window, and arm dedupe_timer. Under the lock.
    cdef void remember_msg_id(self, const char *id, size_t n, uint64_t seq, int64_t ts) noexcept nogil
    # Copy the id of the last message (n == 0: it has none, or there is no memory for it). Under the lock.
    cdef void set_last_msg_id(self, const char *id, size_t n) noexcept nogil
    # Have expiry_timer fire at `when`, ns since 1970, or earlier if it is armed earlier. Under the lock.
    cdef void arm_expiry(self, int64_t when) noexcept nogil


cpdef enum StreamEvent:
    # `a` of an EV_JETSTREAM event that a stream posts to the control plane
    STREAM_FAILED = 1            # b: errno
    BATCH_ABANDONED = 2          # b: an AbandonReason; data: the id of the atomic batch
    STREAM_DAMAGED = 3           # the store has found that messages are lost


# Note that a rollup has purged `subject` (n == 0: everything), for leave() to notify consumers. Under the lock.
cdef void note_purged(StreamCore s, const char *subject, size_t n) noexcept nogil
# Have schedule_timer fire when the next schedule is due. Under the lock.
cdef void arm_schedules(StreamCore s) noexcept nogil
# The store's callbacks on_lost and on_removed; ctx is the StreamCore. Under the lock.
cdef void note_damage(void *ctx) noexcept nogil
cdef void note_removed(void *ctx, uint64_t seq, const char *subject, uint32_t n, uint64_t msgs,
                       uint64_t bytes) noexcept nogil


# Have the stream remove those of its present messages from seq up to, but without, end that no consumer needs any more:
# only those that pass the filter, NULL for all. The caller holds no lock. Any thread.
cdef void remove_unneeded(StreamCore s, const Filter *f, uint64_t seq, uint64_t end)
