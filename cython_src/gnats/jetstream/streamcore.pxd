"""What a stream is made of (stream.go): its settings, its consumers, and what happens around every change of its store.

Lock: the store's is the stream's. Around whatever changes the store stand enter() and leave(): leave() counts what the
stream takes, unlocks, and only then tells consumers of what has gone.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.client cimport Client
from gnats.core.pollstate cimport PollState
from gnats.core.transform cimport Transform
from gnats.jetstream.barrier cimport Local, StreamBase
from gnats.jetstream.batchtable cimport BatchLimits, BatchTable
from gnats.jetstream.consumerlist cimport ConsumerList
from gnats.jetstream.dedupe cimport Dedupe
from gnats.jetstream.engine cimport Engine, JsTimer
from gnats.jetstream.entry cimport Entry, Outcome
from gnats.jetstream.usage cimport Usage
from gnats.store.filter cimport Filter
from gnats.store.store cimport MsgStore

cdef enum Retention:
    LIMITS_POLICY = 0
    INTEREST_POLICY = 1
    WORK_QUEUE_POLICY = 2


# What a configuration means to a message. Under the lock.
cdef struct StreamSettings:
    uint8_t no_ack, sealed, deny_purge, allow_rollup, allow_ttl, allow_counter, allow_schedules
    uint8_t allow_atomic, allow_batched, allow_direct, discard_new, discard_new_per, mirror, memory
    uint8_t republish_headers_only
    uint8_t retention
    int32_t max_msg_size         # -1: none
    int64_t max_msgs, max_bytes, max_msgs_per
    int64_t duplicates           # ns, 0: none are looked for
    int64_t marker_ttl           # seconds, of subject delete markers; 0: there are none


# Removed messages, and purges, that consumers are to be told of, one after another: sequence (0: all of the subject
# were purged), length of the subject, and the subject.
cdef struct Removals:
    char *p
    size_t n
    size_t cap
    uint8_t many                 # and others, without names


cdef class StreamCore(StreamBase)


# What a stream's messages go through on their way into its store: see gnats.jetstream.streamlog. The lock is held.
cdef struct StreamLog:
    # Have an entry, and those that are linked to it, stored by store_entry(), all of them or none. What became of the
    # last, where that is known at once: MSG_STORED then says that the log has it.
    Outcome (*propose)(StreamCore s, Local *local, const Entry *e) noexcept nogil


cdef class StreamCore(StreamBase):
    cdef const StreamLog *log
    cdef readonly Engine engine
    cdef readonly MsgStore store
    cdef readonly str name
    cdef readonly Client client            # its subscriptions, in its account
    cdef readonly Usage account_usage, server_usage
    cdef ConsumerList observing            # the consumers
    cdef list keep
    cdef bytes name_bytes, ack_start, error_tail
    cdef const char *name_p                # of name_bytes
    cdef size_t name_n
    cdef uint64_t max_direct               # bytes of one batch of direct gets, unless it asks for less
    cdef size_t max_payload                # the server's: what a counter may grow to
    cdef readonly BatchLimits batch_limits  # the server's
    # under the lock
    cdef StreamSettings cfg
    cdef const char *pub_ack                   # the beginning of a reply, up to the sequence
    cdef size_t pub_ack_n
    cdef const char *error_end             # and the end of one with an error
    cdef size_t error_end_n
    cdef Transform *itr                    # subject transform at the entrance; NULL for none
    cdef Transform *tr                     # where messages are published again; NULL for none
    cdef Filter *schedule_subjects         # the stream's, if it allows schedules; else NULL
    cdef bint active                       # subscribed
    cdef bint closed
    cdef Dedupe dedupe
    cdef char *last_msg_id
    cdef size_t last_msg_id_n, last_msg_id_cap
    cdef BatchTable atomic_batches, fast_batches
    cdef size_t batch_bytes                # that the atomic ones wait with
    cdef bint batch_timer_set, dedupe_timer_set
    cdef int64_t accounted                 # of store.bytes, in the usages
    cdef Removals removals
    # atomic
    cdef uint32_t untold                   # advisories about batches that the control loop has not published yet
    # timers; armed under the lock
    cdef JsTimer dedupe_timer, expiry_timer, batch_timer, schedule_timer
    cdef bint reserved                     # room for the four in the engine
    cdef uint64_t aged_seq                 # the last sequence when expiry_timer went off last; under the lock
    cdef int64_t expires_at                # ns since 1970 that expiry_timer is armed for, 0 when it is not
    cdef int64_t schedules_at              # the same of schedule_timer

    cdef int reserve_timers(self) except -1
    cdef void release_timers(self) noexcept
    cdef void enter(self) noexcept nogil
    # Unlock, and tell consumers what has been removed. The calling thread is online; what was stored or removed is
    # flushed at the end of its batch, at once without one (ps NULL).
    cdef void leave(self, PollState *ps) noexcept nogil
    # A message that a consumer needs no more, in a stream that keeps messages until then: removed unless a consumer
    # needs it (ackMsg). No lock is held, the thread is online. True when it has gone.
    cdef bint ack_msg(self, uint64_t seq, PollState *ps) noexcept nogil
    # Tell consumers of a purge of `subject` (n == 0: of everything). No lock is held; the thread is online.
    cdef void tell_removed(self, const char *p, size_t n) noexcept nogil
    cdef void tell_purged(self, const char *subject, size_t n) noexcept nogil
    # The store takes nothing any more: no message is acknowledged from now on.
    cdef void fail(self, int error) noexcept nogil
    cdef void remember_msg_id(self, const char *id, size_t n, uint64_t seq, int64_t ts) noexcept nogil
    cdef bint set_last_msg_id(self, const char *id, size_t n) noexcept nogil
    # Have expiry_timer go off at `when`, ns since 1970, unless it goes off before; under the lock.
    cdef void arm_expiry(self, int64_t when) noexcept nogil


cpdef enum StreamEvent:
    # what a stream tells the control plane: `a` of an EV_JETSTREAM
    STREAM_FAILED = 1            # b: errno
    BATCH_ABANDONED = 2          # b: an AbandonReason; data: the id
    STREAM_DAMAGED = 3           # messages were found to be lost


# A rollup has purged `subject` (n == 0: everything): leave() tells the consumers. Under the lock.
cdef void note_purged(StreamCore s, const char *subject, size_t n) noexcept nogil
# Have schedule_timer go off when the next schedule is due; under the lock.
cdef void arm_schedules(StreamCore s) noexcept nogil
# The store's on_lost and on_removed, whose ctx is the StreamCore.
cdef void note_damage(void *ctx) noexcept nogil
cdef void note_removed(void *ctx, uint64_t seq, const char *subject, uint32_t n, uint64_t msgs,
                       uint64_t bytes) noexcept nogil
