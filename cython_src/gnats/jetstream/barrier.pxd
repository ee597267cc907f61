"""What waits until a stream has what it was given for good: answers, and what consumers may see.

A message is stored in memory first. Its stream is *flushed* once at the end of the poller's batch, and, with
`sync_interval: always`, *synced* by a thread of the engine's: one fdatasync covers all that was written before it
began. A stream's Barrier says how far it has come, and for which of both its answers and consumers wait. A log that
waits for other servers adds a third: *committed*.

What waits is held by the poller that stored it, in its Local: answers in two outboxes, consumers in two lists. At the
end of the batch, what waits for no more leaves; the rest goes to the sync thread in a SyncBatch, and comes back.

Lock: `GroupCommit.lock`, a leaf (docs/locks.md), over the queues of the sync thread and the pollers' `done`. A Barrier
is its stream's, under its lock, but for what its comment says. Everything else of a Local is its poller's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.msgtrace cimport MsgTrace
from gnats.core.pollstate cimport PollState
from gnats.core.state cimport MAX_POLLERS
from gnats.includes.atomics cimport load32
from gnats.includes.pthread cimport pthread_cond_t, pthread_mutex_t, pthread_t
from gnats.jetstream.observer cimport Observer
from gnats.jetstream.turns cimport WorkList

cdef struct Barrier:
    uint64_t flushed     # up to here it has been flushed,
    uint64_t synced      # and up to here synced: both only where `syncs`
    uint8_t syncs        # answers, and consumers, wait for a sync
    uint8_t unsynced     # something was flushed that no sync has been asked for yet; atomic
    uint8_t sync_failed  # the sync thread's
    uint64_t sync_turn   # the same


# Messages to publish, one after the other in one piece of memory.
cdef struct Outbox:
    char *p
    size_t n
    size_t cap


# Borrowed pointers.
cdef struct PtrList:
    void **p
    size_t n
    size_t cap


# Answers and consumers that wait for a sync, and the streams that are to be synced.
cdef struct SyncBatch:
    SyncBatch *next
    Local *local
    Outbox out
    PtrList held         # Observers
    bint stored          # all that the answers are about is on the disk
    uint32_t nstreams
    void *streams[1]     # borrowed StreamBases


# One engine's sync thread.
cdef struct GroupCommit:
    pthread_mutex_t lock
    pthread_cond_t wake
    SyncBatch *queue     # under lock, as are the next two
    SyncBatch *queue_last
    bint stopping
    bint running         # the thread has been started; the control loop's
    pthread_t thread
    uint64_t syncs       # so far; atomic, the thread's


# One poller's part of JetStream.
cdef struct Local:
    GroupCommit *commit
    PollState *ps
    PtrList dirty        # StreamBases that have taken something in this batch
    PtrList run          # Observers to run at its end
    PtrList ready        # Observers that have more to deliver than a slice
    Outbox out           # what is sent once it is flushed
    Outbox synced        # and what once it is synced
    PtrList held         # Observers to run then
    WorkList work        # what clients have asked for that takes its time
    MsgTrace *mt         # of the message that a stream is given; NULL for none
    int64_t wall_at      # ps.now of `wall`, ns since 1970
    int64_t wall
    SyncBatch *done      # under commit.lock: oldest first
    SyncBatch *done_last


cdef class StreamBase:
    """What pollers need to know of a stream."""
    cdef void *account             # borrowed core.account.Account
    cdef Barrier barrier
    cdef int failed                # 0, or why the store takes nothing any more: -errno; atomic: stream_failed()
    cdef uint64_t refs             # times it is in Local.dirty or in a SyncBatch; atomic
    cdef uint8_t in_dirty[MAX_POLLERS]    # by poller: it is in Local.dirty; each its poller's

    # Write what the store holds back; 0, or -errno, and the store is frozen. No lock is held.
    cdef int flush(self) noexcept nogil
    # fdatasync what has been written, in the sync thread. The same.
    cdef int sync(self) noexcept nogil


cdef inline bint stream_failed(StreamBase s) noexcept nogil:
    return load32(<uint32_t *> &s.failed) != 0


cdef inline Local *local_of(PollState *ps) noexcept nogil:
    return <Local *> ps.js_local


# -- a stream's; under its lock --

cdef inline uint64_t last_visible(StreamBase s) noexcept nogil:
    """The last sequence that consumers may see: no crash takes it back. A stream that has failed may never sync the
    last of what it has: it shows it all."""
    return s.barrier.synced if s.barrier.syncs and not stream_failed(s) else UINT64_MAX


# Whether the stream, which is at `last`, is to wait for syncs from now on.
cdef void barrier_configure(Barrier *b, bint syncs, uint64_t last) noexcept nogil
# It has been flushed, up to `last`; synced, up to what had been flushed when the sync began.
cdef void barrier_flushed(Barrier *b, uint64_t last) noexcept nogil
cdef void barrier_synced(Barrier *b, uint64_t flushed) noexcept nogil

# -- for a poller's own thread, in a batch --

# ns since 1970, read once a batch.
cdef int64_t batch_time(Local *local) noexcept nogil
# The stream has taken something: flush it at the end of the batch.
cdef bint mark_dirty(Local *local, StreamBase stream) noexcept nogil
# Publish in the stream's account when what it took in this batch has passed its barrier; not at all should that fail,
# unless `anyway`. False when out of memory.
cdef bint publish_later(Local *local, StreamBase stream, const char *subject, size_t sn, const char *hdr, size_t hn,
                        const char *msg, size_t n, bint anyway) noexcept nogil
# Publish at once. No lock may be held.
cdef bint publish_now(PollState *ps, StreamBase stream, const char *subject, size_t sn, const char *shown,
                      size_t shown_n, const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg,
                      size_t n) noexcept nogil
# Call o.run at the end of the batch, once; when what the stream has taken so far may be seen, once.
cdef bint run_later(Local *local, Observer o) noexcept nogil
cdef bint run_when_visible(Local *local, StreamBase stream, Observer o) noexcept nogil
# Call o.run in the poller's next round: it has more than it may deliver in one. At most once for each call of o.run.
cdef bint run_again(Local *local, Observer o) noexcept nogil

# -- the engine's --

# The end of a batch: flush what has taken something, let go what waited for that, give the rest to the sync thread.
cdef void pass_flushed(Local *local) noexcept nogil
# What has come back from the sync thread leaves.
cdef void pass_synced(Local *local) noexcept nogil
cdef void local_free(Local *local) noexcept nogil

cdef void commit_init(GroupCommit *g) noexcept nogil
cdef void commit_free(GroupCommit *g) noexcept nogil
# Start the thread; 0 or an errno. Idempotent, as is the end, before which what waits is synced.
cdef int commit_start(GroupCommit *g) noexcept nogil
cdef void commit_stop(GroupCommit *g) noexcept nogil
# Have a stream synced, which nobody waits for. False when out of memory.
cdef bint commit_soon(GroupCommit *g, Local *local, StreamBase stream) noexcept nogil
