"""The sync thread; see groupcommit.pxd."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from gnats.core.net.pollstate cimport poller_bit
from gnats.core.runtime.turn cimport TURN, turn_begin
from gnats.includes.atomics cimport add64_seq, and64, bump64, exchange8, store8_release
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
from gnats.jetstream.engine.barrier cimport JsPoller, Outbox, PtrList, StreamBase, run_later, stream_failed
from gnats.jetstream.engine.consumerbase cimport ConsumerBase, consumer_kick
from gnats.jetstream.engine.outbox cimport send_out


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
        free_batch(batch)
        batch = following


cdef void free_batch(SyncBatch *batch) noexcept nogil:
    free(batch.out.p)
    free(batch.held.p)
    free(batch)


cdef void *sync_loop(void *arg) noexcept nogil:
    """The sync thread: take all queued batches, sync each of their streams once, give the batches back."""
    cdef SyncBatch *batch
    cdef SyncBatch *following
    cdef SyncBatch *taken
    cdef JsPoller *jp
    cdef uint32_t i
    cdef uint64_t round_number = 0
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
        round_number += 1
        batch = taken
        while batch != NULL:
            for i in range(batch.nstreams):
                if (<StreamBase> batch.streams[i]).barrier.sync_round != round_number:
                    (<StreamBase> batch.streams[i]).barrier.sync_round = round_number
                    if (<StreamBase> batch.streams[i]).sync() != 0:
                        (<StreamBase> batch.streams[i]).barrier.sync_failed = True
                    bump64(&(<GroupCommit *> arg).syncs, 1)
                if (<StreamBase> batch.streams[i]).barrier.sync_failed:
                    batch.stored = False
            batch = batch.next
        batch = taken
        while batch != NULL:
            following = batch.next
            jp = batch.jp   # which may free the batch as soon as it has it
            pthread_mutex_lock(&(<GroupCommit *> arg).lock)
            append_batch(&jp.done, &jp.done_last, batch)
            pthread_mutex_unlock(&(<GroupCommit *> arg).lock)
            store8_release(&jp.ps.js_signalled, 1)
            eventfd_write(jp.ps.evfd, 1)
            batch = following
        if stop and taken == NULL:
            return NULL


# -- in a poller's own thread ------------------------------------------------------------------------------------------

cdef void give_to_sync(JsPoller *jp) noexcept nogil:
    cdef SyncBatch *batch = <SyncBatch *> malloc(sizeof(SyncBatch) + jp.dirty.n * sizeof(void *))
    cdef uint32_t i
    for i in range(jp.held.n):
        and64(&(<ConsumerBase> jp.held.p[i]).held, ~poller_bit(jp.ps))
    if batch == NULL:
        sync_here(jp)
        return
    batch.jp = jp
    batch.out = jp.synced
    memset(&jp.synced, 0, sizeof(Outbox))
    batch.held = jp.held
    memset(&jp.held, 0, sizeof(PtrList))
    batch.nstreams = 0
    batch.stored = True
    for i in range(jp.dirty.n):
        if (<StreamBase> jp.dirty.p[i]).barrier.syncs:
            exchange8(&(<StreamBase> jp.dirty.p[i]).barrier.unsynced, 0)
            batch.streams[batch.nstreams] = jp.dirty.p[i]
            batch.nstreams += 1
            add64_seq(&(<StreamBase> jp.dirty.p[i]).refs, 1)
            if stream_failed(<StreamBase> jp.dirty.p[i]):
                batch.stored = False
    pthread_mutex_lock(&jp.commit.lock)
    append_batch(&jp.commit.queue, &jp.commit.queue_last, batch)
    pthread_cond_signal(&jp.commit.wake)
    pthread_mutex_unlock(&jp.commit.lock)


cdef void sync_here(JsPoller *jp) noexcept nogil:
    """Sync the streams in this thread, for want of memory for a SyncBatch, then send the answers and run the consumers:
    nothing else would wake these."""
    cdef Outbox out = jp.synced   # sending may add others
    cdef PtrList held = jp.held
    cdef size_t i
    memset(&jp.synced, 0, sizeof(Outbox))
    memset(&jp.held, 0, sizeof(PtrList))
    for i in range(jp.dirty.n):
        if (<StreamBase> jp.dirty.p[i]).barrier.syncs:
            exchange8(&(<StreamBase> jp.dirty.p[i]).barrier.unsynced, 0)
            (<StreamBase> jp.dirty.p[i]).sync()
            (<StreamBase> jp.dirty.p[i]).synced(jp)
    while not send_out(jp, &out, False):
        turn_begin(&jp.ps.turn, NULL, TURN)   # leave none: only until now do places in `dirty` keep their streams alive
    run_held(jp, &held)
    free(out.p)
    free(held.p)


cdef void run_held(JsPoller *jp, PtrList *held) noexcept nogil:
    """Have consumers run at the end of the batch, whose messages are synced."""
    cdef size_t i
    for i in range(held.n):
        if not run_later(jp, <ConsumerBase> held.p[i]):
            consumer_kick(<ConsumerBase> held.p[i])
        add64_seq(&(<ConsumerBase> held.p[i]).refs, <uint64_t> -1)


cdef void take_synced(JsPoller *jp) noexcept nogil:
    cdef SyncBatch **last = &jp.passing
    while last[0] != NULL:
        last = &last[0].next
    pthread_mutex_lock(&jp.commit.lock)
    last[0] = jp.done
    jp.done = jp.done_last = NULL
    pthread_mutex_unlock(&jp.commit.lock)
    while last[0] != NULL:
        jp.passing_n += last[0].out.cap   # many of them are nearly empty
        last = &last[0].next


cdef void pass_synced(JsPoller *jp) noexcept nogil:
    cdef SyncBatch *batch
    cdef uint32_t i
    while jp.passing != NULL:
        batch = jp.passing
        if not send_out(jp, &batch.out, batch.stored):
            return
        jp.passing = batch.next
        jp.passing_n -= batch.out.cap
        run_held(jp, &batch.held)
        for i in range(batch.nstreams):
            (<StreamBase> batch.streams[i]).synced(jp)
            add64_seq(&(<StreamBase> batch.streams[i]).refs, <uint64_t> -1)
        free_batch(batch)
