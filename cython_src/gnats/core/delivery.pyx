"""The receiving half of a connection that subscribes; see delivery.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.connection cimport SLOW_CONSUMER_PENDING_BYTES, WRITE_ERROR, Connection
from gnats.core.encode cimport Frame, append_frame, frame_size, put_frame
from gnats.core.guard cimport NOTE_REPLIES
from gnats.core.imports cimport Importer
from gnats.core.kinds cimport CLIENT
from gnats.core.message cimport Message
from gnats.core.outbound cimport outq_commit, outq_reserve
from gnats.core.pollstate cimport PollState
from gnats.core.records cimport TRACE_OUT, TRACE_OUT_PAYLOAD, Recorder
from gnats.core.state cimport ServerState
from gnats.core.sublist cimport Subscription, sub_sid
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport (
    addi64_seq,
    bump64,
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


cdef class Deliverer(Importer):
    """A connection that messages are delivered to; see Client."""

    def __dealloc__(self):
        free(self.reap)

    cdef Egress deliver_local(self, const Message *m, const Subscription *s, const Frame *f) noexcept nogil:
        cdef size_t total = frame_size(f, s)
        cdef char *p
        cdef bint noted
        if unlikely(load8(&self.closing)):
            return EGRESS_CLIENT_CLOSED
        if unlikely(load8(&self.gated)) and load8(&(<ServerState> self.server)._no_stall):
            if (<Connection> m.origin).kind == CLIENT:
                return EGRESS_NO_STALL
        # What caused this message was queued to us before the publisher's bytes were read: take it first.
        if self.remote_seen != self.ps.reads:
            self.remote_seen = self.ps.reads
            if load8_acquire(&self.has_remote):
                self.take_remote()
        p = outq_reserve(&self.out, &self.ps.pool, total)
        if p != NULL:
            put_frame(p, s, f)
            outq_commit(&self.out, total)
        elif append_frame(&self.out, &self.ps.pool, s, f) < 0:
            self.out_of_memory(WRITE_ERROR)
            return EGRESS_CLIENT_CLOSED
        bump64(&self.out_msgs, 1)
        bump64(&self.out_bytes, f.size)
        if unlikely(self.checks & NOTE_REPLIES) and m.reply.p != NULL:
            pthread_mutex_lock(&self.lock)
            noted = self.note_reply(self.ps, &m.reply)
            pthread_mutex_unlock(&self.lock)
            if not noted:
                self.out_of_memory(WRITE_ERROR)
                return EGRESS_CLIENT_CLOSED
        if not self.dirty:
            self.dirty = 1
            self.dirty_next = self.ps.dirty
            self.ps.dirty = <void *> self
        if unlikely(self.trace):
            self.trace_out(<Recorder> m.origin, s, f)
        if unlikely(self.out.bytes > self.flush_over):
            self.outbound_over(<Connection> m.origin)
        return EGRESS_OK

    cdef Egress deliver_remote(self, const Message *m, Subscription *s, const Frame *f) noexcept nogil:
        cdef PollState *ps = m.ps
        cdef size_t total = frame_size(f, s)
        cdef size_t pending
        cdef int64_t nm, max
        cdef char *p
        cdef bint wake = False, over = False, dropped
        pthread_mutex_lock(&self.lock)
        # Counted under the lock: when one poller counts the last message, those before it are queued.
        max = loadi64(&s.max)
        if self.refused or load8(&s.closed):
            pthread_mutex_unlock(&self.lock)
            return EGRESS_SUB_CLOSED if load8(&s.closed) else EGRESS_CLIENT_CLOSED
        nm = addi64_seq(&s.nm, 1) + 1
        if max > 0 and nm > max:
            pthread_mutex_unlock(&self.lock)
            return EGRESS_AUTO_UNSUBSCRIBED
        dropped = (
            load8(&self.gated) and (<Connection> m.origin).kind == CLIENT
            and load8(&(<ServerState> self.server)._no_stall))
        if not dropped:
            wake = self.remote.head == NULL
            p = outq_reserve(&self.remote, &ps.pool, total)
            if p != NULL:
                put_frame(p, s, f)
                outq_commit(&self.remote, total)
            elif append_frame(&self.remote, &ps.pool, s, f) < 0:
                self.refuse_out_of_memory()
                pthread_mutex_unlock(&self.lock)
                self.signal_after_batch(ps)
                return EGRESS_CLIENT_CLOSED
            store8_release(&self.has_remote, 1)
            self.remote_msgs += 1
            self.remote_bytes += f.size
            if unlikely(load8(&self.checks) & NOTE_REPLIES) and m.reply.p != NULL:
                if not self.note_reply(ps, &m.reply):
                    self.refuse_out_of_memory()
                    wake = True
            pending = load64(&self.backlog) + self.remote.bytes
            if pending > self.max_pending:
                self.refuse_more(SLOW_CONSUMER_PENDING_BYTES)
                wake = True
            elif pending > self.gate:
                over = wake = True
            if unlikely((<Recorder> m.origin).trace):
                self.trace_out(<Recorder> m.origin, s, f)
        if max > 0 and nm == max:
            wake = True
            store8(&s.closed, 1)
            if not self.reap_later(s):
                self.refuse_out_of_memory()
        pthread_mutex_unlock(&self.lock)
        if over:
            self.stall(<Connection> m.origin)
        if wake:
            self.signal_after_batch(ps)
        return EGRESS_NO_STALL if dropped else EGRESS_OK

    cdef void signal_after_batch(self, PollState *ps) noexcept nogil:
        if ps.ntouched == ps.touched_cap and not array_grow(&ps.touched, &ps.touched_cap, 64, sizeof(void *)):
            self.signal_owner()
            return
        ps.touched[ps.ntouched] = <void *> self
        ps.ntouched += 1

    cdef bint reap_later(self, Subscription *s) noexcept nogil:
        """Leave an exhausted subscription for the owner to take out; the lock is held."""
        if self.nreap == self.reap_cap and not array_grow(&self.reap, &self.reap_cap, 8, sizeof(Subscription *)):
            return False
        self.reap[self.nreap] = s
        self.nreap += 1
        return True

    cdef void trace_out(self, Recorder publisher, const Subscription *s, const Frame *f) noexcept nogil:
        cdef char *line
        cdef char *p
        if f.mid_n == 0:
            return
        line = <char *> malloc(f.pre_n + s.sid_len + 1 + f.mid_n)
        if line == NULL:
            return
        p = put_text(put(put(line, f.pre, f.pre_n), sub_sid(s), s.sid_len), b" ")
        p = put(p, f.mid, f.mid_n - strlen(b"\r\n"))
        self.trace_line_of(publisher, TRACE_OUT, line, p - line, NULL, 0)
        free(line)
        self.trace_msg_of(publisher, TRACE_OUT_PAYLOAD, f.pay, f.pay_n + f.tail_n, f.hdr)
