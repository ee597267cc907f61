"""Queue a message to a connection; see delivery.pxd."""
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.accounts.guard cimport NOTE_REPLIES, note_reply
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.encode cimport Frame, queue_frame
from gnats.core.messages.message cimport Message
from gnats.core.net.connection cimport WRITE_ERROR, Connection
from gnats.core.net.connectionbase cimport ConnectionBase
from gnats.core.net.log_records cimport TRACE_OUT, TRACE_OUT_PAYLOAD
from gnats.core.runtime.slice cimport Slice
from gnats.includes.atomics cimport bump64, load8, load8_acquire, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put


cdef Egress deliver_local(Subscriber c, const Message *m, const Frame *f) noexcept nogil:
    cdef Slice reply
    cdef bint noted
    if unlikely(load8(&c.closing)):
        return EGRESS_CLIENT_CLOSED
    if unlikely(is_dropped(c, m)):
        return EGRESS_NO_STALL
    # Messages that caused this one were queued to `remote` before it was read, or found in a stream: move them first.
    if c.remote_seen != c.ps.epoch:
        c.remote_seen = c.ps.epoch
        if load8_acquire(&c.has_remote):
            c.take_remote()
    if not queue_frame(&c.out, &c.ps.pool, f):
        c.out_of_memory(WRITE_ERROR)
        return EGRESS_CLIENT_CLOSED
    bump64(&c.out_msgs, 1)
    bump64(&c.out_bytes, f.size)
    if unlikely(c.guard.checks & NOTE_REPLIES) and m.reply.p != NULL:
        pthread_mutex_lock(&c.lock)
        reply = reply_of(c, m)
        noted = note_reply(&c.guard, c.ps, &reply)
        pthread_mutex_unlock(&c.lock)
        if not noted:
            c.out_of_memory(WRITE_ERROR)
            return EGRESS_CLIENT_CLOSED
    if not c.dirty:
        c.dirty = 1
        c.dirty_next = c.ps.dirty
        c.ps.dirty = <void *> c
    if unlikely(c.trace):
        trace_out(c, <ConnectionBase> m.origin, f)
    if unlikely(c.out.bytes > c.flush_over):
        note_shown(m)
        c.outbound_over(<Connection> m.origin)
    return EGRESS_OK


cdef void trace_out(Subscriber c, ConnectionBase publisher, const Frame *f) noexcept nogil:
    cdef char *line
    cdef char *p
    if f.mid_n == 0:
        return
    line = <char *> malloc(f.pre_n + f.part.n + f.mid_n)
    if line == NULL:
        return
    p = put(put(line, f.pre, f.pre_n), f.part.p, f.part.n)
    p = put(p, f.mid, f.mid_n - strlen(b"\r\n"))
    c.trace_line_of(publisher, TRACE_OUT, line, p - line, NULL, 0)
    free(line)
    c.trace_msg_of(publisher, TRACE_OUT_PAYLOAD, f.pay, f.pay_n + f.tail_n, f.hdr)
