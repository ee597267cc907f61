"""Messages on their way to subscribers; see delivery.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, strlen

from gnats.core.account cimport Account, StreamImport, import_sub, import_to
from gnats.core.connection cimport SLOW_CONSUMER_PENDING_BYTES, WRITE_ERROR
from gnats.core.guard cimport CHECK_DELIVERIES, NOTE_REPLIES
from gnats.core.imports cimport Importer, transformed
from gnats.core.inbox cimport (
    ACCOUNT_PART,
    ASKER_PART,
    EV_MSG,
    HEADER_PART,
    PAYLOAD_PART,
    REPLY_PART,
    SUBJECT_PART,
    Event,
    Inbox,
)
from gnats.core.msgtrace cimport (
    EGRESS_AUTO_UNSUBSCRIBED,
    EGRESS_CLIENT_CLOSED,
    EGRESS_NO_ECHO,
    EGRESS_NO_STALL,
    EGRESS_OK,
    EGRESS_SUB_CLOSED,
    EGRESS_SUB_DENY,
    MsgTrace,
    trace_egress,
    trace_stream_export,
)
from gnats.core.outbound cimport (
    ChunkPool,
    OutMark,
    OutQueue,
    outq_append,
    outq_commit,
    outq_mark,
    outq_reserve,
    outq_rollback,
)
from gnats.core.parser cimport CLIENT, GATEWAY, JETSTREAM, LEAF, ROUTER, PubArg, Slice
from gnats.core.pollstate cimport PollState, poller_random
from gnats.core.records cimport LOG_AUTO_UNSUBSCRIBE, TRACE_OUT, TRACE_OUT_PAYLOAD
from gnats.core.state cimport ServerState
from gnats.core.sublist cimport (
    SUB_NATIVE,
    SUB_SHADOW,
    MatchResult,
    QueueGroup,
    Subscription,
    sub_queue,
    sub_sid,
    sub_subject,
)
from gnats.core.subtable cimport subtable_find
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
    store64,
    storei64,
    unlikely,
)
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport NUMBER_ROOM, put, put_number, put_text

cdef enum:
    FEW_LAST = 16                  # imports and native subscribers of one subject that need no memory but the stack's


# Who gets a message after all others: imports, native subscribers and their shadows.
cdef struct LastOnes:
    uint32_t n
    Subscription **subs
    Subscription *few[FEW_LAST]


cdef bint add_last(LastOnes *last, Subscription *s, const MatchResult *r) noexcept nogil:
    if last.n == FEW_LAST and last.subs == last.few:
        last.subs = <Subscription **> malloc((r.npsubs + r.nqgroups) * sizeof(Subscription *))
        if last.subs == NULL:
            last.subs = last.few
            return False
        memcpy(last.subs, last.few, sizeof(last.few))
    last.subs[last.n] = s
    last.n += 1
    return True


cdef inline bint is_native_shadow(const Subscription *s) noexcept nogil:
    """Is this a shadow of a native subscriber? What hears the message may publish in place."""
    return s.flags == SUB_SHADOW and s.kind == JETSTREAM


cdef class Deliverer(Importer):
    """A connection that messages come from and go to; see Client."""

    def __dealloc__(self):
        free(self.reap)

    cdef bint process_msg_results(self, MatchResult *r, char *msg, size_t n) noexcept nogil:
        cdef Delivery full, bare
        cdef uint32_t i, k, start
        cdef uint64_t delivered = 0   # to clients: what the server itself hears is not counted
        cdef bint received = False, traced = self.mt != NULL
        cdef QueueGroup *group
        cdef Subscription *s
        cdef LastOnes last
        last.n = 0
        last.subs = last.few
        full.pre = NULL
        bare.pre = NULL
        for i in range(r.npsubs):
            s = r.psubs[i]
            if unlikely(s.flags != 0):
                if s.flags == SUB_SHADOW and not is_native_shadow(s):
                    if self.deliver_shadow(s, msg, n, &full, &bare):
                        received = 1
                        delivered += not s.internal
                    continue
                if not add_last(&last, s, r):
                    self.out_of_memory(WRITE_ERROR)   # the others are served all the same
                continue
            if (
                self.deliver_traced(s, msg, n, &full, &bare) if unlikely(traced)
                else self.deliver_msg(s, msg, n, &full, &bare)
            ):
                received = 1
                delivered += not s.internal
        for k in range(r.nqgroups):
            group = &r.qgroups[k]
            start = poller_random(self.ps) % group.n if group.n > 1 else 0
            # the first member from a random one on that can take it
            for i in range(group.n):
                s = group.subs[(start + i) % group.n]
                if unlikely(s.flags != 0):
                    if s.flags & SUB_NATIVE or is_native_shadow(s):
                        if load8(&s.closed) or (s.flags == SUB_SHADOW and self.hop != NULL):
                            continue
                        if not add_last(&last, s, r):
                            self.out_of_memory(WRITE_ERROR)
                            continue
                    elif not self.deliver_shadow(s, msg, n, &full, &bare):
                        continue
                elif unlikely(traced):
                    if not self.deliver_traced(s, msg, n, &full, &bare):
                        continue
                elif not self.deliver_msg(s, msg, n, &full, &bare):
                    continue
                received = 1
                delivered += not s.internal
                break
        if delivered:
            bump64(&self.ps.out_msgs, delivered)
            bump64(&self.ps.out_bytes, delivered * (n - 2))
        if unlikely(last.n != 0):
            # Last: what they deliver may replace the result and the memory that were used up to here.
            for i in range(last.n):
                s = last.subs[i]
                if load8(&s.closed):
                    continue
                if is_native_shadow(s):
                    received |= self.deliver_shadow(s, msg, n, &full, &bare)
                    continue
                addi64_seq(&s.nm, 1)
                received |= (
                    self.deliver_native(s, msg, n) if s.flags & SUB_NATIVE else self.deliver_import(s, msg, n))
            if last.subs != last.few:
                free(last.subs)
        return received

    cdef bint deliver_shadow(
        self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        """Deliver to a subscription that imports what is published here, by the subject it knows it under."""
        cdef char[256] few
        cdef char *subject = NULL
        cdef PubArg *pa = &self.pa
        cdef Slice published = pa.subject
        cdef Slice shown = pa.deliver
        cdef uint8_t canonical = pa.canonical
        cdef StreamImport *im = <StreamImport *> import_sub(s).what
        cdef Delivery own_full, own_bare
        cdef bint delivered
        if self.hop != NULL:
            return False   # what has come through a service import does not leave as a stream
        if im.use_published:
            return self.deliver_export(s, im, msg, n, full, bare)
        if im.tr != NULL:
            subject = transformed(im.tr, &published, &self.ps.rng, few, sizeof(few), &pa.subject.n)
            if subject == NULL:
                pa.subject = published
                self.out_of_memory(WRITE_ERROR)
                return False
            pa.subject.p = subject
        else:
            pa.subject.p = <char *> import_to(im)
            pa.subject.n = im.to_n
        pa.canonical = 0
        pa.deliver.p = NULL
        own_full.pre = own_bare.pre = NULL
        delivered = self.deliver_export(s, im, msg, n, &own_full, &own_bare)
        full.pre = bare.pre = NULL   # they may have been in the memory that was used now
        pa.subject = published
        pa.deliver = shown
        pa.canonical = canonical
        if subject != few:
            free(subject)
        return delivered

    cdef bint deliver_export(
        self, Subscription *s, StreamImport *im, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        cdef MsgTrace *t = self.mt
        cdef bint delivered
        if t == NULL:
            return self.deliver_msg(s, msg, n, full, bare)
        trace_stream_export(t, &(<Account> im.owner).info_name, &self.pa.subject)
        if im.allow_trace:
            return self.deliver_traced(s, msg, n, full, bare)
        if t.only:
            return True
        self.mt = NULL
        delivered = self.deliver_msg(s, msg, n, full, bare)
        self.mt = t
        return delivered

    cdef bint deliver_traced(
        self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        """deliver_msg() that notes what becomes of the message, and may do no more than that."""
        cdef MsgTrace *t = self.mt
        cdef Slice subject, queue
        cdef int64_t max
        cdef int error = EGRESS_OK
        cdef bint delivered = False
        if s.internal:
            return self.deliver_msg(s, msg, n, full, bare)
        if s.client == <void *> self and not self.opts.echo:
            error = EGRESS_NO_ECHO
        elif load8(&(<Deliverer> s.client).checks) & CHECK_DELIVERIES and (
                (<Deliverer> s.client).delivery_denied(self.ps, &self.pa.subject, s)):
            error = EGRESS_SUB_DENY
        elif load8(&s.closed):
            error = EGRESS_SUB_CLOSED
        elif load8(&(<Deliverer> s.client).closing):
            error = EGRESS_CLIENT_CLOSED   # and its subscriptions are being taken out
        elif t.only:
            delivered = True
        else:
            delivered = self.deliver_msg(s, msg, n, full, bare)
            max = loadi64(&s.max)
            if delivered:
                pass
            elif max > 0 and loadi64(&s.nm) > max:
                error = EGRESS_AUTO_UNSUBSCRIBED
            elif load8(&(<Deliverer> s.client).gated) and load8(&(<ServerState> self.server)._no_stall):
                error = EGRESS_NO_STALL
            else:
                error = EGRESS_CLIENT_CLOSED
        subject.p = <char *> sub_subject(s)
        subject.n = s.subject_len
        queue.p = <char *> sub_queue(s)
        queue.n = s.queue_len
        trace_egress(t, (<Deliverer> s.client).cid, &subject, &queue, error)
        return delivered

    cdef bint deliver_msg(
        self, Subscription *s, char *msg, size_t n, Delivery *full, Delivery *bare
    ) noexcept nogil:
        cdef Delivery *d = full
        cdef int64_t nm, max
        cdef bint strip, delivered
        if s.client == <void *> self and not self.opts.echo:
            return False
        if unlikely(load8(&s.closed)):
            return False
        if unlikely(s.kind == ROUTER or s.kind == GATEWAY or s.kind == LEAF):
            return False   # no such connection exists before there are clusters
        if s.internal:
            addi64_seq(&s.nm, 1)
            if unlikely((<Deliverer> s.client).kind == JETSTREAM):
                return self.deliver_native_shadow(<Deliverer> s.client, s, msg, n)
            return self.deliver_internal(<Deliverer> s.client, s, msg, n)
        if unlikely(load8(&(<Deliverer> s.client).checks) & CHECK_DELIVERIES):
            if (<Deliverer> s.client).delivery_denied(self.ps, &self.pa.subject, s):
                return False
        strip = self.pa.hdr > 0 and not load8(&(<Deliverer> s.client).headers)
        if strip:
            d = bare
        if d.pre == NULL:
            self.delivery(d, msg, n, strip)
            if d.pre == NULL:
                self.out_of_memory(WRITE_ERROR)
                return False
        if (<Deliverer> s.client).ps != self.ps:
            return (<Deliverer> s.client).deliver_remote(self, s, d)
        if self.ps.solo:
            nm = loadi64(&s.nm) + 1
            storei64(&s.nm, nm)
        else:
            nm = addi64_seq(&s.nm, 1) + 1
        max = loadi64(&s.max)
        if unlikely(max > 0 and nm > max):
            return False   # another poller delivered the last; it is about to be taken out
        delivered = (<Deliverer> s.client).deliver_local(self, s, d)
        if unlikely(max > 0 and nm == max) and not load8(&(<Deliverer> s.client).closing):
            (<Deliverer> s.client).debugf(LOG_AUTO_UNSUBSCRIBE, max, sub_sid(s), s.sid_len)
            (<Deliverer> s.client).unsubscribe(s)
        return delivered

    cdef void delivery(self, Delivery *d, char *msg, size_t n, bint bare) noexcept nogil:
        """What all subscribers of a kind are sent but for the sid. `bare` is without the header."""
        cdef PubArg *pa = &self.pa
        cdef PollState *ps = self.ps
        cdef Slice shown = pa.deliver if pa.deliver.p != NULL else pa.subject
        cdef size_t room = shown.n + pa.reply.n + line_room()
        cdef char *p
        cdef bint header = pa.hdr > 0 and not bare
        cdef Slice *first
        if pa.canonical and not bare and (pa.hdb.p == NULL or header):
            # "PUB subject ..." in the read buffer becomes "MSG subject ", and from its reply or size on it can go
            # out as it came in.
            p = pa.line
            if header:
                p[0] = c'H'
                p += 1
            put_text(p, b"MSG")
            first = &pa.reply if pa.reply.p != NULL else (&pa.hdb if header else &pa.szb)
            d.pre = pa.line
            d.pre_n = pa.subject.p + pa.subject.n + 1 - pa.line
            d.mid = NULL
            d.mid_n = 0
            d.pay = first.p
            d.pay_n = msg + n - first.p
            d.hdr = pa.hdr if header else 0
            d.size = n - 2
            d.tail_n = 0
            return
        if ps.scratch_len < 2 * room:
            free(ps.scratch)
            ps.scratch = <char *> malloc(2 * room)
            store64(<uint64_t *> &ps.scratch_len, 2 * room if ps.scratch != NULL else 0)
            if ps.scratch == NULL:
                return
        p = ps.scratch + (room if bare else 0)
        d.pre = p
        if header:
            p[0] = c'H'
            p += 1
        p = put_text(p, b"MSG ")
        p = put(p, shown.p, shown.n)
        p = put_text(p, b" ")
        d.pre_n = p - d.pre
        d.mid = p
        if pa.reply.p != NULL:
            p = put(p, pa.reply.p, pa.reply.n)
            p = put_text(p, b" ")
        d.pay = msg
        d.tail_n = strlen(b"\r\n") if pa.no_crlf else 0
        d.pay_n = n - d.tail_n
        d.hdr = pa.hdr if header else 0
        if bare:
            p = put_number(p, pa.size - pa.hdr)
            d.pay += pa.hdr
            d.pay_n -= pa.hdr
        else:
            if header:
                p = put(p, pa.hdb.p, pa.hdb.n)
                p = put_text(p, b" ")
            p = put(p, pa.szb.p, pa.szb.n)
        p = put_text(p, b"\r\n")
        d.mid_n = p - d.mid
        d.size = d.pay_n + d.tail_n - 2

    cdef bint deliver_local(self, Deliverer producer, const Subscription *s, const Delivery *d) noexcept nogil:
        """Queue a message to us, a connection of the calling poller."""
        cdef size_t total = d.pre_n + s.sid_len + 1 + d.mid_n + d.pay_n + d.tail_n
        cdef char *p
        cdef bint noted
        if unlikely(load8(&self.closing)):
            return False
        if unlikely(load8(&self.gated)) and load8(&(<ServerState> self.server)._no_stall):
            if producer.kind == CLIENT:
                return False
        # Whoever published this has not sent it before it was read: what is queued now is all that can have caused it.
        if self.remote_seen != self.ps.reads:
            self.remote_seen = self.ps.reads
            if load8_acquire(&self.has_remote):
                self.take_remote()
        p = outq_reserve(&self.out, &self.ps.pool, total)
        if p != NULL:
            put_message(p, s, d)
            outq_commit(&self.out, total)
        elif append_message(&self.out, &self.ps.pool, s, d) < 0:
            self.out_of_memory(WRITE_ERROR)
            return False
        bump64(&self.out_msgs, 1)
        bump64(&self.out_bytes, d.size)
        if unlikely(self.checks & NOTE_REPLIES) and producer.pa.reply.p != NULL:
            pthread_mutex_lock(&self.lock)
            noted = self.note_reply(self.ps, &producer.pa.reply)
            pthread_mutex_unlock(&self.lock)
            if not noted:
                self.out_of_memory(WRITE_ERROR)
                return False
        if not self.dirty:
            self.dirty = 1
            self.dirty_next = self.ps.dirty
            self.ps.dirty = <void *> self
        if unlikely(self.trace):
            self.trace_out(producer, s, d)
        if unlikely(self.out.bytes > self.flush_over):
            self.outbound_over(producer)
        return True

    cdef bint deliver_remote(self, Deliverer producer, Subscription *s, const Delivery *d) noexcept nogil:
        """Queue a message to us, a connection of another poller than the producer's."""
        cdef size_t total = d.pre_n + s.sid_len + 1 + d.mid_n + d.pay_n + d.tail_n
        cdef size_t pending
        cdef int64_t nm, max
        cdef char *p
        cdef bint wake = False, over = False, dropped
        pthread_mutex_lock(&self.lock)
        # Counted under the lock: whoever counts the last message knows that those before it are queued.
        max = loadi64(&s.max)
        if self.refused or load8(&s.closed):
            pthread_mutex_unlock(&self.lock)
            return False
        nm = addi64_seq(&s.nm, 1) + 1
        if max > 0 and nm > max:
            pthread_mutex_unlock(&self.lock)
            return False
        dropped = (
            load8(&self.gated) and producer.kind == CLIENT and load8(&(<ServerState> self.server)._no_stall))
        if not dropped:
            wake = self.remote.head == NULL
            p = outq_reserve(&self.remote, &producer.ps.pool, total)
            if p != NULL:
                put_message(p, s, d)
                outq_commit(&self.remote, total)
            elif append_message(&self.remote, &producer.ps.pool, s, d) < 0:
                self.refuse_out_of_memory()
                pthread_mutex_unlock(&self.lock)
                producer.touch(self)
                return False
            store8_release(&self.has_remote, 1)
            self.remote_msgs += 1
            self.remote_bytes += d.size
            if unlikely(load8(&self.checks) & NOTE_REPLIES) and producer.pa.reply.p != NULL:
                if not self.note_reply(producer.ps, &producer.pa.reply):
                    self.refuse_out_of_memory()
                    wake = True
            pending = load64(&self.backlog) + self.remote.bytes
            if pending > self.max_pending:
                self.refuse_more(SLOW_CONSUMER_PENDING_BYTES)
                wake = True
            elif pending > self.gate:
                over = wake = True
            if unlikely(producer.trace):
                self.trace_out(producer, s, d)
        if max > 0 and nm == max:
            wake = True
            store8(&s.closed, 1)
            if not self.reap_later(s):
                self.refuse_out_of_memory()
        pthread_mutex_unlock(&self.lock)
        if over:
            self.stall(producer)
        if wake:
            producer.touch(self)
        return not dropped

    cdef bint reap_later(self, Subscription *s) noexcept nogil:
        """Leave an exhausted subscription for the owner to take out; the lock is held."""
        if self.nreap == self.reap_cap and not array_grow(&self.reap, &self.reap_cap, 8, sizeof(Subscription *)):
            return False
        self.reap[self.nreap] = s
        self.nreap += 1
        return True

    cdef void touch(self, Deliverer dest) noexcept nogil:
        """`dest`, of another poller, is to be signalled at the end of our batch."""
        cdef PollState *ps = self.ps
        if ps.ntouched == ps.touched_cap and not array_grow(&ps.touched, &ps.touched_cap, 64, sizeof(void *)):
            dest.signal_owner()
            return
        ps.touched[ps.ntouched] = <void *> dest
        ps.ntouched += 1

    cdef bint deliver_native(self, Subscription *s, char *msg, size_t n) noexcept nogil:
        cdef NativeSub *native = native_sub(s)
        return native.fn(native.ctx, self, s, msg, n)   # also what is only traced: streams trace, too

    cdef bint deliver_native_shadow(
        self, Deliverer dest, const Subscription *shadow, char *msg, size_t n
    ) noexcept nogil:
        cdef Subscription *s
        pthread_mutex_lock(&dest.lock)
        s = subtable_find(&dest.subs, sub_sid(shadow), shadow.sid_len)
        pthread_mutex_unlock(&dest.lock)
        return s != NULL and s.flags & SUB_NATIVE and self.deliver_native(s, msg, n)

    cdef bint deliver_internal(self, Deliverer dest, const Subscription *s, char *msg, size_t n) noexcept nogil:
        """Post a message to a subscriber in the server itself."""
        cdef PubArg *pa = &self.pa
        cdef size_t hdr = pa.hdr if pa.hdr > 0 else 0
        cdef Slice account = (<Account> self.account).info_name
        cdef Slice asker
        cdef Event *ev
        cdef char *p
        asker.p = NULL
        asker.n = 0
        if self.hop != NULL and self.hop.request:
            asker = self.hop.info
            account = (<Account> self.hop.account).info_name
        ev = (<Inbox> dest.inbox).new_event(
            EV_MSG, <void *> dest, &dest.source,
            pa.subject.n + pa.reply.n + n - 2 + asker.n + account.n + s.sid_len)
        if ev == NULL:
            self.out_of_memory(WRITE_ERROR)
            return False
        ev.a = <int64_t> self.cid
        ev.part[SUBJECT_PART] = <uint32_t> pa.subject.n
        ev.part[REPLY_PART] = <uint32_t> pa.reply.n
        ev.part[HEADER_PART] = <uint32_t> hdr
        ev.part[PAYLOAD_PART] = <uint32_t> (n - 2 - hdr)
        ev.part[ASKER_PART] = <uint32_t> asker.n
        ev.part[ACCOUNT_PART] = <uint32_t> account.n
        p = ev.data
        memcpy(p, pa.subject.p, pa.subject.n)
        p += pa.subject.n
        if pa.reply.p != NULL:
            memcpy(p, pa.reply.p, pa.reply.n)
            p += pa.reply.n
        memcpy(p, msg, n - 2)
        p += n - 2
        if asker.n:
            memcpy(p, asker.p, asker.n)
            p += asker.n
        memcpy(p, account.p, account.n)
        memcpy(p + account.n, sub_sid(s), s.sid_len)
        return (<Inbox> dest.inbox).post_caused(ev, &self.source)

    cdef void trace_out(self, Deliverer producer, const Subscription *s, const Delivery *d) noexcept nogil:
        cdef char *line
        cdef char *p
        if d.mid_n == 0:
            return
        line = <char *> malloc(d.pre_n + s.sid_len + 1 + d.mid_n)
        if line == NULL:
            return
        p = put_text(put(put(line, d.pre, d.pre_n), sub_sid(s), s.sid_len), b" ")
        p = put(p, d.mid, d.mid_n - strlen(b"\r\n"))
        self.trace_line_of(producer, TRACE_OUT, line, p - line, NULL, 0)
        free(line)
        self.trace_msg_of(producer, TRACE_OUT_PAYLOAD, d.pay, d.pay_n + d.tail_n, d.hdr)


cdef inline size_t line_room() noexcept nogil:
    """Bytes of "[H]MSG subject sid [reply] [header size] size" beside the subject, the sid and the reply."""
    return strlen(b"HMSG  ") + strlen(b" ") + 2 * (NUMBER_ROOM + strlen(b" ")) + strlen(b"\r\n")


cdef inline void put_message(char *p, const Subscription *s, const Delivery *d) noexcept nogil:
    p = put_text(put(put(p, d.pre, d.pre_n), sub_sid(s), s.sid_len), b" ")
    if d.mid_n:
        p = put(p, d.mid, d.mid_n)
    p = put(p, d.pay, d.pay_n)
    if d.tail_n:
        put_text(p, b"\r\n")


cdef int append_message(OutQueue *q, ChunkPool *pool, const Subscription *s, const Delivery *d) noexcept nogil:
    """Queue a message over several chunks, all of it or nothing; -1 when out of memory."""
    cdef OutMark mark = outq_mark(q)
    if (
        outq_append(q, pool, d.pre, d.pre_n) == 0
        and outq_append(q, pool, sub_sid(s), s.sid_len) == 0
        and outq_append(q, pool, b" ", 1) == 0
        and outq_append(q, pool, d.mid, d.mid_n) == 0
        and outq_append(q, pool, d.pay, d.pay_n) == 0
        and outq_append(q, pool, b"\r\n", d.tail_n) == 0
    ):
        return 0
    outq_rollback(q, pool, &mark)
    return -1
