"""Queue a message to a connection; see delivery.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.accounts.guard cimport NOTE_REPLIES, note_reply
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.encode cimport Frame, append_frame, frame_size, put_frame
from gnats.core.messages.message cimport Message
from gnats.core.net.connection cimport SLOW_CONSUMER_PENDING_BYTES, WRITE_ERROR, Connection
from gnats.core.net.log_records cimport TRACE_OUT, TRACE_OUT_PAYLOAD, Recorder
from gnats.core.net.outbound cimport ChunkPool, OutQueue, outq_commit, outq_reserve
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.kinds cimport CLIENT
from gnats.core.subjects.sublist cimport Subscription, sub_sid
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport (
    addi64_seq,
    bump64,
    likely,
    load8,
    load8_acquire,
    load64,
    loadi64,
    store8,
    store8_release,
    unlikely,
)
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put, put_text


cdef inline bint queue_frame(OutQueue *q, ChunkPool *pool, const Subscription *s, const Frame *f) noexcept nogil:
    """Queue all of a frame, or nothing and return False: out of memory."""
    cdef size_t total
    cdef char *p
    if likely(f.block == NULL):
        total = frame_size(f, s)
        p = outq_reserve(q, pool, total)
        if likely(p != NULL):
            put_frame(p, s, f)
            outq_commit(q, total)
            return True
    return append_frame(q, pool, s, f) == 0


cdef Egress deliver_local(Subscriber c, const Message *m, const Subscription *s, const Frame *f) noexcept nogil:
    cdef bint noted
    if unlikely(load8(&c.closing)):
        return EGRESS_CLIENT_CLOSED
    if unlikely(load8(&c.gated)) and load8(&c.server._no_stall):
        if (<Connection> m.origin).kind == CLIENT:
            return EGRESS_NO_STALL
    # Messages that caused this one were queued to `remote` before the publisher's bytes were read: move them first.
    if c.remote_seen != c.ps.reads:
        c.remote_seen = c.ps.reads
        if load8_acquire(&c.has_remote):
            c.take_remote()
    if not queue_frame(&c.out, &c.ps.pool, s, f):
        c.out_of_memory(WRITE_ERROR)
        return EGRESS_CLIENT_CLOSED
    bump64(&c.out_msgs, 1)
    bump64(&c.out_bytes, f.size)
    if unlikely(c.guard.checks & NOTE_REPLIES) and m.reply.p != NULL:
        pthread_mutex_lock(&c.lock)
        noted = note_reply(&c.guard, c.ps, &m.reply)
        pthread_mutex_unlock(&c.lock)
        if not noted:
            c.out_of_memory(WRITE_ERROR)
            return EGRESS_CLIENT_CLOSED
    if not c.dirty:
        c.dirty = 1
        c.dirty_next = c.ps.dirty
        c.ps.dirty = <void *> c
    if unlikely(c.trace):
        trace_out(c, <Recorder> m.origin, s, f)
    if unlikely(c.out.bytes > c.flush_over):
        c.outbound_over(<Connection> m.origin)
    return EGRESS_OK


cdef Egress deliver_remote(Subscriber c, const Message *m, Subscription *s, const Frame *f) noexcept nogil:
    cdef PollState *ps = m.ps
    cdef size_t pending
    cdef int64_t nm, max
    cdef bint wake = False, over = False, dropped
    pthread_mutex_lock(&c.lock)
    # Count under the lock: when a poller counts the last message, all messages before it are queued.
    max = loadi64(&s.max)
    if c.refused or load8(&s.closed):
        pthread_mutex_unlock(&c.lock)
        return EGRESS_SUB_CLOSED if load8(&s.closed) else EGRESS_CLIENT_CLOSED
    nm = addi64_seq(&s.nm, 1) + 1
    if max > 0 and nm > max:
        pthread_mutex_unlock(&c.lock)
        return EGRESS_AUTO_UNSUBSCRIBED
    dropped = (
        load8(&c.gated) and (<Connection> m.origin).kind == CLIENT
        and load8(&c.server._no_stall))
    if not dropped:
        wake = c.remote.head == NULL
        if not queue_frame(&c.remote, &ps.pool, s, f):
            c.refuse_out_of_memory()
            pthread_mutex_unlock(&c.lock)
            signal_after_batch(c, ps)
            return EGRESS_CLIENT_CLOSED
        store8_release(&c.has_remote, 1)
        c.remote_msgs += 1
        c.remote_bytes += f.size
        if unlikely(load8(&c.guard.checks) & NOTE_REPLIES) and m.reply.p != NULL:
            if not note_reply(&c.guard, ps, &m.reply):
                c.refuse_out_of_memory()
                wake = True
        pending = load64(&c.backlog) + c.remote.bytes
        if pending > c.max_pending:
            c.refuse_more(SLOW_CONSUMER_PENDING_BYTES)
            wake = True
        elif pending > c.gate:
            over = wake = True
        if unlikely((<Recorder> m.origin).trace):
            trace_out(c, <Recorder> m.origin, s, f)
    if max > 0 and nm == max:
        wake = True
        store8(&s.closed, 1)
        if not reap_later(c, s):
            c.refuse_out_of_memory()
    pthread_mutex_unlock(&c.lock)
    if over:
        c.stall(<Connection> m.origin)
    if wake:
        signal_after_batch(c, ps)
    return EGRESS_NO_STALL if dropped else EGRESS_OK


cdef void signal_after_batch(Subscriber c, PollState *ps) noexcept nogil:
    if ps.ntouched == ps.touched_cap and not array_grow(&ps.touched, &ps.touched_cap, 64, sizeof(void *)):
        c.signal_owner()
        return
    ps.touched[ps.ntouched] = <void *> c
    ps.ntouched += 1


cdef bint reap_later(Subscriber c, Subscription *s) noexcept nogil:
    """Leave an exhausted subscription for the owner to remove. The lock is held. False without memory."""
    if c.nreap == c.reap_cap and not array_grow(&c.reap, &c.reap_cap, 8, sizeof(Subscription *)):
        return False
    c.reap[c.nreap] = s
    c.nreap += 1
    return True


cdef void trace_out(Subscriber c, Recorder publisher, const Subscription *s, const Frame *f) noexcept nogil:
    cdef char *line
    cdef char *p
    if f.mid_n == 0:
        return
    line = <char *> malloc(f.pre_n + s.sid_len + 1 + f.mid_n)
    if line == NULL:
        return
    p = put_text(put(put(line, f.pre, f.pre_n), sub_sid(s), s.sid_len), b" ")
    p = put(p, f.mid, f.mid_n - strlen(b"\r\n"))
    c.trace_line_of(publisher, TRACE_OUT, line, p - line, NULL, 0)
    free(line)
    c.trace_msg_of(publisher, TRACE_OUT_PAYLOAD, f.pay, f.pay_n + f.tail_n, f.hdr)
