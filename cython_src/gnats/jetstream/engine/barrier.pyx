"""Hold answers and consumers back until messages are durable; see barrier.pxd."""
from libc.stdint cimport int64_t, uint64_t

from gnats.core.net.pollstate cimport poller_bit
from gnats.core.runtime.clock cimport realtime_ns
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport add64_seq, exchange8, likely, load64, or64
from gnats.jetstream.engine.consumerbase cimport ConsumerBase


cdef class StreamBase:
    """The part of a stream that pollers use; see gnats.jetstream.stream.stream.Stream."""

    cdef int flush(self, JsPoller *jp) noexcept nogil:
        return 0

    cdef int sync(self) noexcept nogil:
        return 0

    cdef void synced(self, JsPoller *jp) noexcept nogil:
        pass


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


# -- in a poller's own thread ------------------------------------------------------------------------------------------

cdef bint append_ptr(PtrList *list, void *p) noexcept nogil:
    if list.n == list.cap and not array_grow(&list.p, &list.cap, 16, sizeof(void *)):
        return False
    list.p[list.n] = p
    list.n += 1
    return True


cdef int64_t batch_time(JsPoller *jp) noexcept nogil:
    if jp.wall_at != jp.ps.now:
        jp.wall_at = jp.ps.now
        jp.wall = realtime_ns()
    return jp.wall


cdef bint add_dirty(JsPoller *jp, StreamBase stream) noexcept nogil:
    if not append_ptr(&jp.dirty, <void *> stream):
        return False
    stream.in_dirty[jp.ps.index] = 1
    add64_seq(&stream.refs, 1)
    jp.ps.js_dirty = True
    return True


cdef bint run_later(JsPoller *jp, ConsumerBase o) noexcept nogil:
    cdef uint64_t bit = poller_bit(jp.ps)
    if load64(&o.marked) & bit:
        return True
    if not append_ptr(&jp.run, <void *> o):
        return False
    or64(&o.marked, bit)
    add64_seq(&o.refs, 1)
    jp.ps.js_dirty = True
    return True


cdef bint run_when_visible(JsPoller *jp, StreamBase stream, ConsumerBase o) noexcept nogil:
    cdef uint64_t bit = poller_bit(jp.ps)
    if likely(not stream.barrier.syncs):
        return run_later(jp, o)
    if load64(&o.held) & bit == 0:
        if not append_ptr(&jp.held, <void *> o):
            return False
        or64(&o.held, bit)
        add64_seq(&o.refs, 1)
    return mark_dirty(jp, stream)


cdef bint run_again(JsPoller *jp, ConsumerBase o) noexcept nogil:
    cdef uint64_t bit = poller_bit(jp.ps)
    if load64(&o.ready) & bit:
        return True
    if not append_ptr(&jp.ready, <void *> o):
        return False
    or64(&o.ready, bit)
    add64_seq(&o.refs, 1)
    jp.ps.js_ready = True
    return True
