"""What JetStream adds to the pollers of a server: work at the end of their batches, timers, group commit.

A poller's batch may store messages in streams. What follows from that waits for its end, where `js_hook` has each
stream that took something write once, sends the replies that waited for it, and runs the consumers that have something
to deliver. With `sync_interval: always` the replies wait for the engine's sync thread as well: one fdatasync covers all
that was written before it began; then the poller that stored the messages sends them, and runs their consumers.

Locks: `Engine.lock` over the queues of the sync thread and the pollers' `done`; `Engine.timer_lock` over the heap of
timers. Both are leaves (docs/locks.md). Everything else of a Local is its poller's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from gnats.core.inbox cimport Source
from gnats.core.msgtrace cimport MsgTrace
from gnats.core.pollstate cimport PollState
from gnats.core.timers cimport Timer, TimerHeap
from gnats.includes.atomics cimport load32
from gnats.includes.pthread cimport pthread_cond_t, pthread_mutex_t, pthread_t
from gnats.jetstream.observer cimport Observer
from gnats.jetstream.turns cimport Work, WorkList


# A deadline. `fn` is called in the control loop's thread, which is online, with no lock held; it may arm it again.
cdef struct JsTimer:
    Timer timer          # timer.owner is for fn; set before it is armed
    void (*fn)(void *owner, PollState *ps) noexcept nogil


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


# Replies and consumers that wait for a sync, and the streams that are to be synced.
cdef struct SyncBatch:
    SyncBatch *next
    Local *local
    Outbox out
    PtrList held         # Observers
    bint stored          # all that the replies are about is on the disk
    uint32_t nstreams
    void *streams[1]     # borrowed StreamBases


# One poller's part.
cdef struct Local:
    void *engine         # borrowed Engine
    PollState *ps
    PtrList dirty        # StreamBases that have taken something in this batch
    PtrList run          # Observers to run at its end
    PtrList ready        # Observers that have more to deliver than a slice
    Outbox out           # what is sent once it is flushed
    Outbox synced        # and what once it is synced
    WorkList work        # what clients have asked for that takes its time
    MsgTrace *mt         # of the message that a stream is given; NULL for none
    PtrList held         # Observers to run then
    int64_t wall_at      # ps.now of `wall`, ns since 1970
    int64_t wall
    SyncBatch *done      # under Engine.lock: oldest first
    SyncBatch *done_last


cdef class StreamBase:
    """What the engine needs to know of a stream."""
    cdef void *account             # borrowed core.account.Account
    cdef uint8_t sync_always       # replies wait for a sync
    cdef uint8_t unsynced          # something was flushed that sync() has not been called for yet; atomic
    cdef int failed                # 0, or why the store takes nothing any more: -errno; atomic: stream_failed()
    cdef uint64_t refs             # times it is in Local.dirty or in a SyncBatch; atomic
    cdef uint64_t sync_turn        # the sync thread's
    cdef bint sync_failed          # the same
    cdef uint8_t in_dirty[64]      # by poller: it is in Local.dirty; each its poller's

    # Write what the store holds back; 0, or -errno, and the store is frozen. No lock is held.
    cdef int flush(self) noexcept nogil
    # fdatasync what has been written, in the sync thread. The same.
    cdef int sync(self) noexcept nogil


cdef class Engine:
    """One server's JetStream: see the module."""
    cdef pthread_mutex_t lock
    cdef pthread_mutex_t timer_lock
    cdef pthread_cond_t wake
    cdef TimerHeap timers          # under timer_lock, as is armed
    cdef int64_t armed
    cdef int tmfd
    cdef SyncBatch *queue          # under lock
    cdef SyncBatch *queue_last
    cdef bint stopping             # under lock
    cdef bint syncing              # the thread has been started
    cdef pthread_t thread
    cdef uint64_t syncs            # so far; atomic, the sync thread's
    cdef Local *locals[64]         # by poller; set before the first stream
    cdef PollState *control        # the control loop's poller
    cdef readonly list pollers     # the control loop's first
    cdef readonly object state     # ServerState
    cdef list clients, graveyard
    cdef bint closed

    cdef uint64_t rounds           # of timers; atomic, the control loop's
    # Room for n more timers, n below 0 gives it back: whoever has timers reserves it before it arms the first.
    # False when out of memory.
    cdef bint reserve(self, int n) noexcept nogil
    # Any thread. Sets the deadline, monotonic ns; 0 disarms. What is due already is called soon, after what was due
    # before. A timer that is disarmed by another thread than the control loop's may just be being called.
    cdef void arm(self, JsTimer *t, int64_t when) noexcept nogil
    cdef void expire(self) noexcept nogil
    cdef void give_to_sync(self, Local *local) noexcept nogil


# Have a step of `w` done whenever it has its turn; `causer` has asked for it. False: it has asked for too much.
cdef bint take_turns(Local *local, Work *w, Source *causer) noexcept nogil


cdef inline bint stream_failed(StreamBase s) noexcept nogil:
    return load32(<uint32_t *> &s.failed) != 0


cdef inline Local *local_of(PollState *ps) noexcept nogil:
    return <Local *> ps.js_local


# -- for a poller's own thread, in a batch --

# ns since 1970, read once a batch.
cdef int64_t batch_time(Local *local) noexcept nogil
# The stream has taken something: flush it at the end of the batch.
cdef bint mark_dirty(Local *local, StreamBase stream) noexcept nogil
# Publish in the stream's account when what it took in this batch has been flushed, and with sync_always synced; not at
# all should that fail, unless `anyway`. False when out of memory.
cdef bint publish_later(Local *local, StreamBase stream, const char *subject, size_t sn, const char *hdr, size_t hn,
                        const char *msg, size_t n, bint anyway) noexcept nogil
# Publish at once. No lock may be held.
cdef bint publish_now(PollState *ps, StreamBase stream, const char *subject, size_t sn, const char *shown,
                      size_t shown_n, const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg,
                      size_t n) noexcept nogil
# Call o.run at the end of the batch, once.
cdef bint run_later(Local *local, Observer o) noexcept nogil
# Call o.run when what a stream with sync_always has taken so far is durable, once.
cdef bint run_synced(Local *local, StreamBase stream, Observer o) noexcept nogil
# Call o.run in the poller's next round: it has more than it may deliver in one. At most once for each call of o.run.
cdef bint run_again(Local *local, Observer o) noexcept nogil
