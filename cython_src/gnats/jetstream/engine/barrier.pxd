"""Hold answers back, and messages from consumers, until the messages of a stream are durable.

A message is stored in memory first. Its stream is *flushed* (written) once at the end of the poller's batch. With
`sync_interval: always` it is then *synced* by a thread of the engine: one fdatasync covers everything that was written
before it began. A stream's Barrier says up to which sequence each is done, and which of them answers and consumers
wait for.

A message must also be *committed*: a quorum of the servers that replicate the stream has it. A Barrier need not say so,
because a stream's log applies an entry (store_entries) only when it is committed. So all that a store has is committed,
and an answer, which applying makes, cannot be too early. The log of a single server commits what it is given.

The poller that stored a message holds its answer and its consumers in its JsPoller: answers in two outboxes
(gnats.jetstream.engine.outbox), consumers in two lists. At the end of the batch, those that wait for the flush alone
leave. The others go to the sync thread in a SyncBatch (gnats.jetstream.engine.groupcommit), and come back to the poller
when the streams are synced.

Lock: `GroupCommit.lock`, a leaf (docs/locks.md), guards the queue of the sync thread and each poller's `done`. A
Barrier is under its stream's lock, except where a field says otherwise. The rest of a JsPoller belongs to its poller.
"""
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.accounts.account cimport Account
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.state cimport MAX_POLLERS
from gnats.includes.atomics cimport load32
from gnats.includes.pthread cimport pthread_cond_t, pthread_mutex_t, pthread_t
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.engine.longwork cimport WorkList

cdef struct Barrier:
    uint64_t flushed     # the last sequence that is flushed; kept only while `syncs`
    uint64_t synced      # the last sequence that is synced; the same
    uint8_t syncs        # answers and consumers wait for a sync
    uint8_t unsynced     # atomic: a flush sets it, the poller that asks for a sync clears it
    uint8_t sync_failed  # a sync has failed; of the sync thread alone
    uint64_t sync_round  # the round in which it was synced last; of the sync thread alone


# Messages to publish, one after the other in one piece of memory.
cdef struct Outbox:
    char *p
    size_t n
    size_t cap
    size_t at            # what is before this place has been sent
    size_t counted       # the messages before this place, and behind `at`, are counted in the `refs` of their streams


# Borrowed pointers.
cdef struct PtrList:
    void **p
    size_t n
    size_t cap


# The streams to sync for one poller, and the answers and consumers that wait for it.
cdef struct SyncBatch:
    SyncBatch *next
    JsPoller *jp         # the poller it comes from and goes back to
    Outbox out
    PtrList held         # consumers (ConsumerBase) to run
    bint stored          # none of the streams has failed: all messages that the answers are about are on the disk
    uint32_t nstreams
    void *streams[1]     # borrowed StreamBases


# One engine's sync thread.
cdef struct GroupCommit:
    pthread_mutex_t lock
    pthread_cond_t wake
    SyncBatch *queue     # oldest first; under lock, as are the next two
    SyncBatch *queue_last
    bint stopping
    bint running         # the thread has been started; of the control loop alone
    pthread_t thread
    uint64_t syncs       # syncs of streams since the start; atomic: the sync thread writes, monitoring reads


# JetStream's part of a poller.
cdef struct JsPoller:
    GroupCommit *commit
    PollState *ps
    void *timers         # borrowed Engine, whose timerfd the control loop's poller sets when that has failed; else NULL
    PtrList dirty        # StreamBases to flush at the end of this batch
    PtrList run          # consumers (ConsumerBase) to run at the end of this batch
    PtrList ready        # consumers (ConsumerBase) to run in the next round: they have more to deliver than a slice
    Outbox out           # messages to send after the flush
    Outbox synced        # messages to send after the sync
    PtrList held         # consumers (ConsumerBase) to run after the sync
    WorkList work        # long work that clients have asked for
    int64_t wall_at      # ps.now when `wall` was read
    int64_t wall         # ns since 1970
    SyncBatch *done      # back from the sync thread, oldest first; under commit.lock
    SyncBatch *done_last
    SyncBatch *passing   # taken from `done`, oldest first: their answers are being sent
    size_t passing_n     # bytes of memory that these answers take
    Outbox sending       # taken from `out`, and not sent yet when a turn was over
    bint behind          # too much was left when the last turn was over: a connection that adds to it ends its turn


cdef class StreamBase:
    """The part of a stream that pollers use."""
    cdef Account account           # set once, with the GIL
    cdef Barrier barrier
    cdef int failed                # 0, or the -errno with which the store has failed; atomic, read by stream_failed()
    cdef uint64_t refs             # how often JsPollers (`dirty`, outboxes) and SyncBatches name it; atomic
    cdef uint8_t in_dirty[MAX_POLLERS]    # by poller: JsPoller.dirty names it; each element is its poller's

    # Write what the store has buffered. Return 0, or -errno: then the stream has failed. No lock is held.
    cdef int flush(self, JsPoller *jp) noexcept nogil
    # fdatasync what is written. Return the same. Called by the sync thread; no lock is held.
    cdef int sync(self) noexcept nogil
    # A sync that this poller has asked for has ended. No lock is held.
    cdef void synced(self, JsPoller *jp) noexcept nogil


cdef inline bint stream_failed(StreamBase s) noexcept nogil:
    return load32(<uint32_t *> &s.failed) != 0


cdef inline JsPoller *js_poller_of(PollState *ps) noexcept nogil:
    return <JsPoller *> ps.js_poller


# -- under the stream's lock --

cdef inline uint64_t last_visible(StreamBase s) noexcept nogil:
    """Return the last sequence that consumers may see. While `syncs`, it is one that no crash can take back.

    A stream that has failed may never sync its last messages, so it shows all of them.
    """
    return s.barrier.synced if s.barrier.syncs and not stream_failed(s) else UINT64_MAX


# Have answers and consumers wait for syncs from now on, or not. `last`: the stream's last sequence.
cdef void barrier_configure(Barrier *b, bint syncs, uint64_t last) noexcept nogil
# Note that the stream is flushed up to `last`.
cdef void barrier_flushed(Barrier *b, uint64_t last) noexcept nogil
# Note that a sync has ended. `flushed`: the value of b.flushed when it began.
cdef void barrier_synced(Barrier *b, uint64_t flushed) noexcept nogil

# -- in a poller's own thread, within a batch --

# Return the time of the batch: ns since 1970, read once.
cdef int64_t batch_time(JsPoller *jp) noexcept nogil
# For mark_dirty().
cdef bint add_dirty(JsPoller *jp, StreamBase stream) noexcept nogil


cdef inline bint mark_dirty(JsPoller *jp, StreamBase stream) noexcept nogil:
    """Have the stream flushed at the end of the batch. False when out of memory."""
    if stream.in_dirty[jp.ps.index]:
        return True
    return add_dirty(jp, stream)


# Call o.run at the end of the batch, once however often this is asked for. False when out of memory.
cdef bint run_later(JsPoller *jp, ConsumerBase o) noexcept nogil
# The same, but not before consumers may see what the stream has stored in this batch.
cdef bint run_when_visible(JsPoller *jp, StreamBase stream, ConsumerBase o) noexcept nogil
# Call o.run once in the poller's next round, because it has more to deliver than one run may. False when out of memory.
cdef bint run_again(JsPoller *jp, ConsumerBase o) noexcept nogil
