"""Hold answers and consumers back until messages are durable; see barrier.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.net.pollstate cimport PollState, poller_bit
from gnats.core.publishing cimport send_internal_msg
from gnats.core.routing.route cimport RouteOutcome
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.runtime.turn cimport turn_end, turn_spend
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport (
    add64_seq,
    and64,
    bump64,
    exchange8,
    likely,
    load64,
    load8,
    or64,
    store8_release,
    unlikely,
)
from gnats.includes.linux cimport eventfd_write
from gnats.includes.pthread cimport (
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_signal,
    pthread_cond_wait,
    pthread_create,
    pthread_join,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_self,
    pthread_setname_np,
)
from gnats.jetstream.engine.consumerbase cimport ConsumerBase
from gnats.jetstream.engine.shortage cimport report_shortage

cdef enum:
    OUTBOX_KEPT = 256 * 1024  # bytes of an outbox that stay allocated
    SENDING = 16              # units of a turn that a message of an outbox takes
    LEFT_MOST = 16777216      # bytes of answers that a turn may leave; more are sent, however long that takes


# A message in an Outbox; subject, header and payload follow it.
cdef struct Outgoing:
    void *stream             # borrowed StreamBase
    uint32_t subject_n
    uint32_t hdr_n
    uint32_t msg_n
    uint32_t anyway          # send it even when the stream has failed


cdef class StreamBase:
    """The part of a stream that pollers use; see gnats.jetstream.stream.stream.Stream."""

    cdef int flush(self) noexcept nogil:
        return 0

    cdef int sync(self) noexcept nogil:
        return 0


# -- a stream's barrier ------------------------------------------------------------------------------------------------

cdef void barrier_configure(Barrier *b, bint syncs, uint64_t last) noexcept nogil:
    if not b.syncs:
        b.flushed = b.synced = last
    b.syncs = syncs


cdef void barrier_flushed(Barrier *b, uint64_t last) noexcept nogil:
    if b.syncs and last > b.flushed:
        b.flushed = last
        exchange8(&b.unsynced, 1)


cdef void barrier_synced(Barrier *b, uint64_t flushed) noexcept nogil:
    b.synced = max(b.synced, flushed)


# -- the sync thread ---------------------------------------------------------------------------------------------------

cdef void commit_init(GroupCommit *g) noexcept nogil:
    pthread_mutex_init(&g.lock, NULL)
    pthread_cond_init(&g.wake, NULL)


cdef void commit_free(GroupCommit *g) noexcept nogil:
    free_batches(g.queue)
    pthread_cond_destroy(&g.wake)
    pthread_mutex_destroy(&g.lock)


cdef int commit_start(GroupCommit *g) noexcept nogil:
    cdef int err
    if g.running:
        return 0
    err = pthread_create(&g.thread, NULL, sync_loop, <void *> g)
    g.running = err == 0
    return err


cdef void commit_stop(GroupCommit *g) noexcept nogil:
    if not g.running:
        return
    pthread_mutex_lock(&g.lock)
    g.stopping = True
    pthread_cond_signal(&g.wake)
    pthread_mutex_unlock(&g.lock)
    pthread_join(g.thread, NULL)
    g.running = False
    g.stopping = False


cdef void give_to_sync(Local *local) noexcept nogil:
    """Queue a SyncBatch with the streams flushed in this batch. publish_later() and run_when_visible() mark their
    stream dirty, so every answer in `synced` and every consumer in `held` waits for one of these streams."""
    cdef SyncBatch *batch = <SyncBatch *> malloc(sizeof(SyncBatch) + local.dirty.n * sizeof(void *))
    cdef uint32_t i
    for i in range(local.held.n):
        and64(&(<ConsumerBase> local.held.p[i]).held, ~poller_bit(local.ps))
    if batch == NULL:
        local.synced.n = 0   # out of memory: drop the answers rather than send one that may not be true
        report_shortage(local.ps)
        for i in range(local.held.n):
            add64_seq(&(<ConsumerBase> local.held.p[i]).refs, <uint64_t> -1)
        local.held.n = 0
        return
    batch.next = NULL
    batch.local = local
    batch.out = local.synced
    memset(&local.synced, 0, sizeof(Outbox))
    batch.held = local.held
    memset(&local.held, 0, sizeof(PtrList))
    batch.nstreams = 0
    batch.stored = True
    for i in range(local.dirty.n):
        if (<StreamBase> local.dirty.p[i]).barrier.syncs:
            exchange8(&(<StreamBase> local.dirty.p[i]).barrier.unsynced, 0)
            batch.streams[batch.nstreams] = local.dirty.p[i]
            batch.nstreams += 1
            add64_seq(&(<StreamBase> local.dirty.p[i]).refs, 1)
            if stream_failed(<StreamBase> local.dirty.p[i]):
                batch.stored = False
    pthread_mutex_lock(&local.commit.lock)
    append_batch(&local.commit.queue, &local.commit.queue_last, batch)
    pthread_cond_signal(&local.commit.wake)
    pthread_mutex_unlock(&local.commit.lock)


cdef void append_batch(SyncBatch **first, SyncBatch **last, SyncBatch *batch) noexcept nogil:
    batch.next = NULL
    if first[0] == NULL:
        first[0] = batch
    else:
        last[0].next = batch
    last[0] = batch


cdef void free_batches(SyncBatch *batch) noexcept nogil:
    cdef SyncBatch *following
    while batch != NULL:
        following = batch.next
        free(batch.out.p)
        free(batch.held.p)
        free(batch)
        batch = following


cdef void *sync_loop(void *arg) noexcept nogil:
    """The sync thread: take all queued batches, sync each of their streams once, give the batches back."""
    cdef SyncBatch *batch
    cdef SyncBatch *following
    cdef SyncBatch *taken
    cdef uint32_t i
    cdef uint64_t turn = 0
    cdef bint stop
    pthread_setname_np(pthread_self(), "gnats-sync")
    while True:
        pthread_mutex_lock(&(<GroupCommit *> arg).lock)
        while (<GroupCommit *> arg).queue == NULL and not (<GroupCommit *> arg).stopping:
            pthread_cond_wait(&(<GroupCommit *> arg).wake, &(<GroupCommit *> arg).lock)
        taken = (<GroupCommit *> arg).queue
        (<GroupCommit *> arg).queue = NULL
        stop = (<GroupCommit *> arg).stopping
        pthread_mutex_unlock(&(<GroupCommit *> arg).lock)
        turn += 1
        batch = taken
        while batch != NULL:
            for i in range(batch.nstreams):
                if (<StreamBase> batch.streams[i]).barrier.sync_turn != turn:
                    (<StreamBase> batch.streams[i]).barrier.sync_turn = turn
                    if (<StreamBase> batch.streams[i]).sync() != 0:
                        (<StreamBase> batch.streams[i]).barrier.sync_failed = True
                    bump64(&(<GroupCommit *> arg).syncs, 1)
                if (<StreamBase> batch.streams[i]).barrier.sync_failed:
                    batch.stored = False
            batch = batch.next
        batch = taken
        while batch != NULL:
            following = batch.next
            pthread_mutex_lock(&(<GroupCommit *> arg).lock)
            append_batch(&batch.local.done, &batch.local.done_last, batch)
            pthread_mutex_unlock(&(<GroupCommit *> arg).lock)
            store8_release(&batch.local.ps.js_signalled, 1)
            eventfd_write(batch.local.ps.evfd, 1)
            batch = following
        if stop and taken == NULL:
            return NULL


# -- the end of a batch ------------------------------------------------------------------------------------------------

cdef bint pass_flushed(Local *local) noexcept nogil:
    cdef size_t i, n = local.dirty.n
    cdef bint unsynced = local.synced.n or local.held.n
    cdef bint left = local.sending.n != 0, sent
    for i in range(n):
        (<StreamBase> local.dirty.p[i]).in_dirty[local.ps.index] = 0
        (<StreamBase> local.dirty.p[i]).flush()
        unsynced |= load8(&(<StreamBase> local.dirty.p[i]).barrier.unsynced)
    if unlikely(unsynced):
        give_to_sync(local)
    if not left:
        local.sending = local.out   # what is put into `out` from now on waits until this has left
        memset(&local.out, 0, sizeof(Outbox))
    sent = send_out(local.ps, &local.sending, False, unsent(local) > LEFT_MOST)
    if sent:
        keep_memory(local)
    # Places in `dirty` have kept the streams alive until now.
    count_streams(&local.sending)
    if left:
        count_streams(&local.out)
    for i in range(n):
        add64_seq(&(<StreamBase> local.dirty.p[i]).refs, <uint64_t> -1)
    local.dirty.n -= n   # sending may have added others
    if local.dirty.n:
        memmove(local.dirty.p, local.dirty.p + n, local.dirty.n * sizeof(void *))
    return sent


cdef void keep_memory(Local *local) noexcept nogil:
    """Use the memory of `sending`, whose messages are sent, for the next ones."""
    if local.out.p == NULL and local.sending.cap <= OUTBOX_KEPT:
        local.sending.n = local.sending.at = local.sending.counted = 0
        local.out = local.sending
    else:
        free(local.sending.p)
    memset(&local.sending, 0, sizeof(Outbox))


cdef void count_streams(Outbox *out) noexcept nogil:
    """Count each message that is still to be sent in the `refs` of its stream, which may be closed before that."""
    cdef Outgoing *o
    cdef size_t at = max(out.at, out.counted)
    out.counted = out.n
    while at < out.n:
        o = <Outgoing *> (out.p + at)
        at += outgoing_size(o.subject_n + <size_t> o.hdr_n + o.msg_n)
        add64_seq(&(<StreamBase> o.stream).refs, 1)


cdef bint send_out(PollState *ps, Outbox *out, bint stored, bint whole) noexcept nogil:
    """Publish the messages of an outbox until the turn is over, or, with `whole`, all. Return whether all are sent.

    A message of a failed stream is dropped unless it is `anyway`, or `stored` says that a sync has covered what it is
    about.
    """
    cdef Outgoing *o
    cdef char *p
    cdef bint counted
    while out.at < out.n:
        if unlikely(ps.turn.over) and not whole:
            return False
        o = <Outgoing *> (out.p + out.at)
        p = <char *> (o + 1)
        counted = out.at < out.counted
        out.at += outgoing_size(o.subject_n + <size_t> o.hdr_n + o.msg_n)
        turn_spend(&ps.turn, SENDING)
        if stored or o.anyway or not stream_failed(<StreamBase> o.stream):
            publish_now(
                ps, <StreamBase> o.stream, p, o.subject_n, NULL, 0, NULL, 0, p + o.subject_n, o.hdr_n,
                p + o.subject_n + o.hdr_n, o.msg_n)
        if counted:
            add64_seq(&(<StreamBase> o.stream).refs, <uint64_t> -1)
    return True


cdef void take_synced(Local *local) noexcept nogil:
    cdef SyncBatch **last = &local.passing
    while last[0] != NULL:
        last = &last[0].next
    pthread_mutex_lock(&local.commit.lock)
    last[0] = local.done
    local.done = local.done_last = NULL
    pthread_mutex_unlock(&local.commit.lock)
    while last[0] != NULL:
        local.passing_n += last[0].out.cap   # many of them are nearly empty
        last = &last[0].next


cdef void pass_synced(Local *local) noexcept nogil:
    cdef SyncBatch *batch
    cdef uint32_t i
    while local.passing != NULL:
        batch = local.passing
        if not send_out(local.ps, &batch.out, batch.stored, unsent(local) > LEFT_MOST):
            return
        local.passing = batch.next
        local.passing_n -= batch.out.cap
        for i in range(batch.held.n):
            run_later(local, <ConsumerBase> batch.held.p[i])
            add64_seq(&(<ConsumerBase> batch.held.p[i]).refs, <uint64_t> -1)
        for i in range(batch.nstreams):
            add64_seq(&(<StreamBase> batch.streams[i]).refs, <uint64_t> -1)
        free(batch.out.p)
        free(batch.held.p)
        free(batch)


# -- in a poller's own thread ------------------------------------------------------------------------------------------

cdef inline size_t outgoing_size(size_t n) noexcept nogil:
    return (sizeof(Outgoing) + n + 7) & ~<size_t> 7


cdef bint append_ptr(PtrList *list, void *p) noexcept nogil:
    if list.n == list.cap and not array_grow(&list.p, &list.cap, 16, sizeof(void *)):
        return False
    list.p[list.n] = p
    list.n += 1
    return True


cdef int64_t batch_time(Local *local) noexcept nogil:
    if local.wall_at != local.ps.now:
        local.wall_at = local.ps.now
        local.wall = realtime_ns()
    return local.wall


cdef bint mark_dirty(Local *local, StreamBase stream) noexcept nogil:
    if stream.in_dirty[local.ps.index]:
        return True
    if not append_ptr(&local.dirty, <void *> stream):
        return False
    stream.in_dirty[local.ps.index] = 1
    add64_seq(&stream.refs, 1)
    local.ps.js_dirty = <void *> local
    return True


cdef bint publish_later(
    Local *local, StreamBase stream, const char *subject, size_t sn, const char *hdr, size_t hn, const char *msg,
    size_t n, bint anyway
) noexcept nogil:
    cdef Outbox *out = &local.synced if stream.barrier.syncs else &local.out
    cdef size_t need = outgoing_size(sn + hn + n)
    cdef size_t cap
    cdef Outgoing *o
    cdef char *p
    if unlikely(local.behind) and local.ps.turn.until != NULL:
        turn_end(&local.ps.turn)   # of the connection that publishes: it may add one answer in a round
    # First, because a message in the outbox leaves after the flush of the dirty streams: its own must be among them.
    if not mark_dirty(local, stream):
        report_shortage(local.ps)
        return False
    if out.cap - out.n < need:
        cap = max(out.cap * 2, max(out.n + need, <size_t> 16384))
        p = <char *> realloc(out.p, cap)
        if p == NULL:
            report_shortage(local.ps)
            return False
        out.p = p
        out.cap = cap
    o = <Outgoing *> (out.p + out.n)
    out.n += need
    o.stream = <void *> stream
    o.subject_n = <uint32_t> sn
    o.hdr_n = <uint32_t> hn
    o.msg_n = <uint32_t> n
    o.anyway = anyway
    p = <char *> (o + 1)
    memcpy(p, subject, sn)
    if hn:
        memcpy(p + sn, hdr, hn)
    if n:
        memcpy(p + sn + hn, msg, n)
    return True


cdef RouteOutcome publish_now(
    PollState *ps, StreamBase stream, const char *subject, size_t sn, const char *shown, size_t shown_n,
    const char *reply, size_t rn, const char *hdr, size_t hn, const char *msg, size_t n
) noexcept nogil:
    ps.epoch += 1   # a core message, or another poller's delivery, may have been queued before this one was found
    return send_internal_msg(
        <Subscriber> ps.js, stream.account, subject, sn, shown, shown_n, reply, rn, hdr, hn, msg, n)


cdef bint run_later(Local *local, ConsumerBase o) noexcept nogil:
    cdef uint64_t bit = poller_bit(local.ps)
    if load64(&o.marked) & bit:
        return True
    if not append_ptr(&local.run, <void *> o):
        return False
    or64(&o.marked, bit)
    add64_seq(&o.refs, 1)
    local.ps.js_dirty = <void *> local
    return True


cdef bint run_when_visible(Local *local, StreamBase stream, ConsumerBase o) noexcept nogil:
    cdef uint64_t bit = poller_bit(local.ps)
    if likely(not stream.barrier.syncs):
        return run_later(local, o)
    if load64(&o.held) & bit == 0:
        if not append_ptr(&local.held, <void *> o):
            return False
        or64(&o.held, bit)
        add64_seq(&o.refs, 1)
    return mark_dirty(local, stream)


cdef bint run_again(Local *local, ConsumerBase o) noexcept nogil:
    if not append_ptr(&local.ready, <void *> o):
        return False
    add64_seq(&o.refs, 1)
    local.ps.js_ready = <void *> local
    return True


cdef void local_free(Local *local) noexcept nogil:
    if local == NULL:
        return
    free_batches(local.done)
    free_batches(local.passing)
    free(local.sending.p)
    free(local.dirty.p)
    free(local.run.p)
    free(local.ready.p)
    free(local.out.p)
    free(local.synced.p)
    free(local.held.p)
    free(local)
