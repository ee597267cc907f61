"""The pull requests of a consumer; see consumerpull.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from gnats.core.accounts.account cimport Account
from gnats.core.messages.reserved cimport REPLY_PREFIX
from gnats.core.messages.responses cimport Expected, expected_other, replymap_find
from gnats.core.net.pollstate cimport PollState, poller_random
from gnats.core.runtime.clock cimport realtime_ns
from gnats.core.subjects.sublist cimport sl_generation_at
from gnats.includes.base62 cimport BASE, DIGITS
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport goes_on_from_text, put_text
from gnats.includes.times cimport time_after
from gnats.includes.units cimport SECOND
from gnats.jetstream.consumer.consumerstate cimport (
    CONSUMER_PINNED,
    PIN_N,
    PRIORITY_NONE,
    PRIORITY_OVERFLOW,
    PRIORITY_PINNED,
    PRIORITY_PRIORITIZED,
)
from gnats.jetstream.consumer.requests cimport (
    REQUEST_BAD_HEARTBEAT,
    REQUEST_BAD_JSON,
    NextRequest,
    WaitingRequest,
    heartbeat_after,
    next_request,
    request_new,
    waitq_add,
    waitq_cycle,
    waitq_due,
    waitq_pop,
    waitq_remove,
    waitq_set_n,
)
from gnats.jetstream.consumer.send_queue cimport outq_ended, outq_status
from gnats.jetstream.engine.jsonreq cimport JSON_ERROR_ROOM, JsonError, json_error_text, json_unescape
from gnats.jetstream.engine.shortage cimport report_shortage

cdef enum:
    TEXT_ROOM = 128
    SUBJECT_ROOM = 4096        # bytes of a reply subject: no more fits into a line of the protocol
    MAX_HOPS = 32              # accounts through which a request may come
    GROUP_ROOM = 128           # bytes of the longest JSON text that can name a priority group
    FIELDS_ROOM = 768          # bytes of the lines of a heartbeat; a stream and a consumer name have 255 each


cdef class ConsumerPull(ConsumerAcks):
    """A consumer's pull requests; see Consumer."""

    cdef bint process_next_msg_request(
        self, PollState *ps, const char *reply, size_t rn, const char *msg, size_t n
    ) noexcept nogil:
        cdef bint there
        if rn == 0:
            return True
        pthread_mutex_lock(&self.lock)
        there = not self.closed
        if there:
            self.take_request(ps, reply, rn, msg, n)
            self.wake(ps)
        pthread_mutex_unlock(&self.lock)
        return there

    cdef bint refuse(self, const char *reply, size_t rn, const char *text) noexcept nogil:
        outq_status(&self.out, reply, rn, NULL, 0, text, b"")
        return False

    cdef bint take_request(
        self, PollState *ps, const char *reply, size_t rn, const char *msg, size_t n
    ) noexcept nogil:
        cdef char[JSON_ERROR_ROOM + 32] text
        cdef NextRequest req
        cdef JsonError err
        cdef WaitingRequest *wr
        cdef int64_t pending
        cdef int bad
        cdef char *at
        if self.cfg.push:
            return self.refuse(reply, rn, b"409 Consumer is push based")
        bad = next_request(msg, n, &req, &err)
        if bad == REQUEST_BAD_HEARTBEAT:
            return self.refuse(reply, rn, b"400 Bad Request - heartbeat value too large")
        if bad == REQUEST_BAD_JSON:
            at = put_text(text, b"400 Bad Request - ")
            at[json_error_text(&err, b"", at)] = 0
            return self.refuse(reply, rn, text)
        if self.cfg.max_batch > 0 and req.batch > self.cfg.max_batch:
            snprintf(text, TEXT_ROOM, b"409 Exceeded MaxRequestBatch of %lld", <long long> self.cfg.max_batch)
            return self.refuse(reply, rn, text)
        if self.cfg.max_expires > 0 and req.expires > self.cfg.max_expires:
            snprintf(text, TEXT_ROOM, b"409 Exceeded MaxRequestExpires of %s", self.expires_text_p)
            return self.refuse(reply, rn, text)
        if self.cfg.max_bytes > 0 and req.max_bytes > self.cfg.max_bytes:
            snprintf(text, TEXT_ROOM, b"409 Exceeded MaxRequestMaxBytes of %lld", <long long> self.cfg.max_bytes)
            return self.refuse(reply, rn, text)
        if req.has_group and not self.group_allowed(ps, &req, reply, rn):
            return False
        if self.waiting.n >= self.waiting.max and ps.now - self.looked_at > SECOND:
            self.process_waiting(False, ps.now)
        if req.no_wait:
            pthread_mutex_lock(&self.store.lock)
            pending = self.num_pending() + self.pending.nqueued
            pthread_mutex_unlock(&self.store.lock)
            if pending == 0 and req.expires == 0:
                self.waiting.last = ps.now
                return self.refuse(reply, rn, b"404 No Messages")
            if 0 < pending < <int64_t> self.waiting.asked and pending < self.asked_before(ps.now):
                self.waiting.last = ps.now
                return self.refuse(reply, rn, b"408 Requests Pending")
        wr = request_new(&req, reply, rn, ps.now)
        if wr == NULL:
            report_shortage(ps)
            return False
        wr.priority = 0
        if self.cfg.priority_policy == PRIORITY_PRIORITIZED:
            wr.priority = <unsigned char> req.priority if req.has_group else 10
        if waitq_add(&self.waiting, wr):
            if self.held_until == self.resting > ps.now:
                self.held_until = ps.now   # no subscriber took the messages for the others; this one's may
            return True
        free(wr)
        # A client that asked for heartbeats notices their absence. An error would make it ask again at once.
        if req.heartbeat == 0:
            self.refuse(reply, rn, b"409 Exceeded MaxWaiting")
        return False

    cdef bint group_allowed(
        self, PollState *ps, const NextRequest *req, const char *reply, size_t rn
    ) noexcept nogil:
        cdef char[3 * GROUP_ROOM] group
        cdef size_t n
        cdef int policy = self.cfg.priority_policy
        if (req.min_pending or req.min_ack_pending) and policy != PRIORITY_OVERFLOW:
            return self.refuse(reply, rn, b"400 Bad Request - Not a Overflow Priority consumer")
        if req.id_n and policy != PRIORITY_PINNED:
            return self.refuse(reply, rn, b"400 Bad Request - Not a Pinned Client Priority consumer")
        if not 0 <= req.priority <= 9:
            return self.refuse(reply, rn, b"400 Bad Request - Priority must be between 0 and 9")
        if policy == PRIORITY_NONE:
            return True
        if req.group_n == 0:
            return self.refuse(reply, rn, b"400 Bad Request - Priority Group missing")
        n = json_unescape(req.group, req.group_n, group) if req.group_n <= GROUP_ROOM else 0
        if self.group == NULL or n != self.group_n or memcmp(group, self.group, n) != 0:
            return self.refuse(reply, rn, b"400 Bad Request - Invalid Priority Group")
        if self.pinned:
            if req.id_n == PIN_N and memcmp(req.id, self.pin, PIN_N) == 0:
                self.set_pinned_timer(ps.now)
            elif req.id_n:
                return self.refuse(reply, rn, b"423 Nats-Pin-Id mismatch")
        return True

    # -- the next request --------------------------------------------------------------------------------------------

    cdef bint request_has_interest(self, WaitingRequest *wr) noexcept nogil:
        cdef uint64_t generation
        if goes_on_from_text(wr.reply, wr.reply_n, REPLY_PREFIX):
            return self.requester_listens(wr)
        generation = sl_generation_at((<Account> self.stream.account).sublist, wr.slot)
        if wr.generation == generation:
            return True
        if not (<Account> self.stream.account).sublist.has_interest(wr.reply, wr.reply_n):
            return False
        wr.generation = generation
        return True

    cdef bint requester_listens(self, const WaitingRequest *wr) noexcept nogil:
        cdef char[SUBJECT_ROOM] one, other
        cdef char *subject = one
        cdef char *to = other
        cdef size_t n = wr.reply_n
        cdef void *account = self.stream.account
        cdef void *before
        cdef char *swap
        cdef Expected *e
        cdef int _hops
        if n > SUBJECT_ROOM:
            return False
        memcpy(subject, wr.reply, n)
        for _hops in range(MAX_HOPS):
            if not goes_on_from_text(subject, n, REPLY_PREFIX):
                break
            before = account
            pthread_mutex_lock(&(<Account> before).lock)
            e = replymap_find(&(<Account> before).responses, subject, n)
            n = e.other_n if e != NULL and e.other_n <= SUBJECT_ROOM else 0
            if n:
                memcpy(to, expected_other(e), n)
                account = e.account
            pthread_mutex_unlock(&(<Account> before).lock)
            if n == 0:
                return False
            swap = subject
            subject = to
            to = swap
        return (<Account> account).sublist.has_interest(subject, n)

    cdef void end_request(self, WaitingRequest *wr, const char *text) noexcept nogil:
        outq_ended(&self.out, wr.reply, wr.reply_n, text, wr.n, wr.b)
        waitq_remove(&self.waiting, wr)

    cdef WaitingRequest *next_waiting(self, PollState *ps, size_t size, int64_t npc) noexcept nogil:
        cdef WaitingRequest *wr
        cdef uint32_t cycled = 0
        cdef bint removed, assigned
        while self.waiting.head != NULL:
            wr = self.waiting.head
            if wr.expires and ps.now >= wr.expires:
                self.end_request(wr, b"408 Request Timeout")
                continue
            removed = assigned = False
            if not self.may_be_served(ps, wr, npc, &removed, &assigned):
                if not removed:
                    waitq_cycle(&self.waiting)
                    cycled += 1
                    if cycled >= self.waiting.n:
                        return NULL
                continue
            if wr.b > 0:
                if <int64_t> size > wr.b:
                    self.end_request(wr, b"409 Message Size Exceeds MaxBytes")
                    if assigned:
                        self.unassign_pin()
                    continue
                wr.b -= <int64_t> size
                if wr.b == 0:
                    waitq_set_n(&self.waiting, wr, 1)   # its bytes are used up: this message is its last
            if not self.request_has_interest(wr):
                waitq_remove(&self.waiting, wr)
                continue
            return waitq_pop(&self.waiting)
        return NULL

    cdef bint may_be_served(
        self, PollState *ps, WaitingRequest *wr, int64_t npc, bint *removed, bint *assigned
    ) noexcept nogil:
        if self.cfg.priority_policy == PRIORITY_PINNED:
            if not self.pinned and (not wr.has_group or wr.id_n == 0):
                self.assign_new_pin(ps, wr)
                assigned[0] = self.pinned
            elif self.pinned and wr.has_group and wr.id_n == PIN_N and memcmp(wr.id, self.pin, PIN_N) == 0:
                pass
            elif self.pinned and (not wr.has_group or wr.id_n == 0):
                return False
            else:
                self.end_request(wr, b"423 Nats-Wrong-Pin-Id")
                removed[0] = True
                return False
        elif self.cfg.priority_policy == PRIORITY_OVERFLOW and wr.has_group:
            if (wr.min_pending > 0 or wr.min_ack_pending > 0) and not (
                0 < wr.min_pending <= npc or 0 < wr.min_ack_pending <= <int64_t> self.pending.n
            ):
                return False
        return True

    cdef void set_pinned_timer(self, int64_t now) noexcept nogil:
        self.pinned_at = time_after(now, self.cfg.pinned_ttl)

    cdef void assign_new_pin(self, PollState *ps, WaitingRequest *wr) noexcept nogil:
        cdef int i
        if not wr.has_group:
            return
        for i in range(PIN_N):
            self.pin[i] = DIGITS[poller_random(ps) % BASE]
        self.pinned = True
        self.pinned_ts = realtime_ns()
        memcpy(wr.id, self.pin, PIN_N)
        wr.id_n = PIN_N
        self.set_pinned_timer(ps.now)
        self.notify(CONSUMER_PINNED, 0, 0, 0, 0, self.pin, PIN_N)

    cdef void unassign_pin(self) noexcept nogil:
        self.pinned = False
        self.pinned_ts = 0
        self.pinned_at = 0

    # -- waiting requests --------------------------------------------------------------------------------------------

    cdef int64_t asked_before(self, int64_t now) noexcept nogil:
        # Look at all requests once a batch, however many requests come in it.
        if self.looked_at != now:
            self.process_waiting(False, now)
        return <int64_t> self.waiting.asked

    cdef void process_waiting(self, bint eos, int64_t now) noexcept nogil:
        cdef WaitingRequest *wr = self.waiting.head
        cdef WaitingRequest *following
        self.looked_at = now
        self.waiting.due = 0
        while wr != NULL:
            following = wr.next
            if wr.expires and now >= wr.expires:
                self.end_request(wr, b"408 Request Timeout")
            elif eos and wr.no_wait and (wr.expires == 0 or wr.d > 0):
                outq_status(&self.out, wr.reply, wr.reply_n, NULL, 0, b"404 No Messages", b"")
                waitq_remove(&self.waiting, wr)
            elif not self.request_has_interest(wr):
                waitq_remove(&self.waiting, wr)
            else:
                if wr.hbt:
                    if now >= wr.hbt:
                        self.send_idle_heartbeat(wr.reply, wr.reply_n)
                        wr.hbt = heartbeat_after(now, wr.hb)
                    waitq_due(&self.waiting, wr.hbt)
                waitq_due(&self.waiting, wr.expires)
            wr = following

    cdef void send_idle_heartbeat(self, const char *dest, size_t n) noexcept nogil:
        cdef char[FIELDS_ROOM] fields
        cdef int at = snprintf(
            fields, 128, b"Nats-Last-Consumer: %llu\r\nNats-Last-Stream: %llu\r\n",
            <unsigned long long> (self.dseq - 1), <unsigned long long> (self.sseq - 1))
        if self.fcid_n:
            snprintf(
                fields + at, FIELDS_ROOM - at, b"Nats-Consumer-Stalled: %.*s\r\n", <int> self.fcid_n, self.fcid)
        outq_status(&self.out, dest, n, NULL, 0, b"100 Idle Heartbeat", fields)
