"""The pull requests of a consumer; see consumerpull.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove

from gnats.core.accounts.account cimport Account
from gnats.core.messages.message cimport Message
from gnats.core.messages.reserved cimport GATEWAY_PREFIX, REPLY_PREFIX, is_service_reply, plain_reply
from gnats.core.messages.responses cimport Expected, expected_other, replymap_find
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription, sl_generation_at, sl_generation_slot
from gnats.includes.atomics cimport unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport goes_on_from_text, put_text
from gnats.includes.units cimport SECOND
from gnats.jetstream.consumer.consumerstate cimport CONSUMER_PINNED, ConsumerState, notify, num_pending, wake
from gnats.jetstream.consumer.pinning cimport PIN_N, has_pin, pin_assign, set_pinned_timer, unassign_pin
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
from gnats.jetstream.consumer.settings cimport (
    PRIORITY_NONE,
    PRIORITY_OVERFLOW,
    PRIORITY_PINNED,
    PRIORITY_PRIORITIZED,
)
from gnats.jetstream.engine.jsonreq cimport JSON_ERROR_ROOM, JsonError, json_error_text, json_unescape
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.state.headers cimport level_too_high

cdef enum:
    TEXT_ROOM = 128
    REPLY_ROOM = 4096        # bytes of a reply subject: no more fits into a line of the protocol
    MAX_HOPS = 32              # accounts through which a request may come
    GROUP_ROOM = 128           # bytes of the longest JSON text that can name a priority group
    FIELDS_ROOM = 768          # bytes of the lines of a heartbeat; a stream and a consumer name have 255 each

# How long the interest of a requester in another cluster may be on its way.
cdef int64_t INTEREST_COMES = 2 * SECOND


cdef bint on_request(void *ctx, const Message *m, const Subscription *s) noexcept nogil:
    return process_next_msg_req(<ConsumerState> ctx, m)


cdef bint process_next_msg_req(ConsumerState o, const Message *m) noexcept nogil:
    cdef bint refused
    if m.reply.n == 0:
        return True
    if m.hdr and level_too_high(m.data, m.hdr):
        pthread_mutex_lock(&o.lock)
        refused = not o.cfg.push
        if refused:
            refuse(o, m.reply.p, m.reply.n, b"412 Required Api Level")
        pthread_mutex_unlock(&o.lock)
        if refused:
            wake(o, m.ps)
            return True
    return process_next_msg_request(o, m.ps, m.reply.p, m.reply.n, m.data + m.hdr, m.n - m.hdr)


cdef bint process_next_msg_request(
    ConsumerState o, PollState *ps, const char *reply, size_t rn, const char *msg, size_t n
) noexcept nogil:
    cdef bint there
    if rn == 0:
        return True
    pthread_mutex_lock(&o.lock)
    there = not o.closed
    if there:
        take_request(o, ps, reply, rn, msg, n)
        wake(o, ps)
    pthread_mutex_unlock(&o.lock)
    return there


cdef bint refuse(ConsumerState o, const char *reply, size_t rn, const char *text) noexcept nogil:
    """Answer with an error status. Return False, for the caller to return."""
    outq_status(&o.out, reply, rn, NULL, 0, text, b"")
    return False


cdef bint take_request(
    ConsumerState o, PollState *ps, const char *reply, size_t rn, const char *msg, size_t n
) noexcept nogil:
    """Check and queue a pull request. False when it is refused."""
    cdef char[JSON_ERROR_ROOM + 32] text
    cdef NextRequest req
    cdef JsonError err
    cdef WaitingRequest *wr
    cdef int64_t pending
    cdef int bad
    cdef char *at
    if o.cfg.push:
        return refuse(o, reply, rn, b"409 Consumer is push based")
    bad = next_request(msg, n, &req, &err)
    if bad == REQUEST_BAD_HEARTBEAT:
        return refuse(o, reply, rn, b"400 Bad Request - heartbeat value too large")
    if bad == REQUEST_BAD_JSON:
        at = put_text(text, b"400 Bad Request - ")
        at[json_error_text(&err, b"", at)] = 0
        return refuse(o, reply, rn, text)
    if o.cfg.max_batch > 0 and req.batch > o.cfg.max_batch:
        snprintf(text, TEXT_ROOM, b"409 Exceeded MaxRequestBatch of %lld", <long long> o.cfg.max_batch)
        return refuse(o, reply, rn, text)
    if o.cfg.max_expires > 0 and req.expires > o.cfg.max_expires:
        snprintf(text, TEXT_ROOM, b"409 Exceeded MaxRequestExpires of %s", o.expires_text_p)
        return refuse(o, reply, rn, text)
    if o.cfg.max_bytes > 0 and req.max_bytes > o.cfg.max_bytes:
        snprintf(text, TEXT_ROOM, b"409 Exceeded MaxRequestMaxBytes of %lld", <long long> o.cfg.max_bytes)
        return refuse(o, reply, rn, text)
    if req.has_group and not group_allowed(o, ps, &req, reply, rn):
        return False
    if o.waiting.n >= o.waiting.max and ps.now - o.looked_at > SECOND:
        process_waiting(o, False, ps.now)
    if req.no_wait:
        pthread_mutex_lock(&o.store.lock)
        pending = num_pending(o) + o.stored.pending.nqueued
        pthread_mutex_unlock(&o.store.lock)
        if pending == 0 and req.expires == 0:
            o.waiting.last = ps.now
            return refuse(o, reply, rn, b"404 No Messages")
        if 0 < pending < <int64_t> o.waiting.asked and pending < asked_before(o, ps.now):
            o.waiting.last = ps.now
            return refuse(o, reply, rn, b"408 Requests Pending")
    wr = request_new(&req, reply, rn, ps.now)
    if wr == NULL:
        report_shortage(ps)
        return False
    wr.priority = 0
    if o.cfg.priority_policy == PRIORITY_PRIORITIZED:
        wr.priority = <unsigned char> req.priority if req.has_group else 10
    if waitq_add(&o.waiting, wr):
        if o.held_until == o.resting > ps.now:
            o.held_until = ps.now   # no subscriber took the messages for the others; this one's may
        return True
    free(wr)
    # A client that asked for heartbeats notices their absence. An error would make it ask again at once.
    if req.heartbeat == 0:
        refuse(o, reply, rn, b"409 Exceeded MaxWaiting")
    return False


cdef bint group_allowed(
    ConsumerState o, PollState *ps, const NextRequest *req, const char *reply, size_t rn
) noexcept nogil:
    """Check a request's priority group, and answer if it is refused."""
    cdef char[3 * GROUP_ROOM] group
    cdef size_t n
    cdef int policy = o.cfg.priority_policy
    if (req.min_pending or req.min_ack_pending) and policy != PRIORITY_OVERFLOW:
        return refuse(o, reply, rn, b"400 Bad Request - Not a Overflow Priority consumer")
    if req.id_n and policy != PRIORITY_PINNED:
        return refuse(o, reply, rn, b"400 Bad Request - Not a Pinned Client Priority consumer")
    if not 0 <= req.priority <= 9:
        return refuse(o, reply, rn, b"400 Bad Request - Priority must be between 0 and 9")
    if policy == PRIORITY_NONE:
        return True
    if req.group_n == 0:
        return refuse(o, reply, rn, b"400 Bad Request - Priority Group missing")
    n = json_unescape(req.group, req.group_n, group) if req.group_n <= GROUP_ROOM else 0
    if o.group == NULL or n != o.group_n or memcmp(group, o.group, n) != 0:
        return refuse(o, reply, rn, b"400 Bad Request - Invalid Priority Group")
    if has_pin(&o.pin, req.id, req.id_n):
        set_pinned_timer(&o.pin, ps.now, o.cfg.pinned_ttl)
    elif o.pin.held and req.id_n:
        return refuse(o, reply, rn, b"423 Nats-Pin-Id mismatch")
    return True


# -- the next request --------------------------------------------------------------------------------------------------

cdef bint request_has_interest(ConsumerState o, WaitingRequest *wr, int64_t now) noexcept nogil:
    """Return whether the request's reply subject has a subscriber."""
    cdef uint64_t generation
    if unlikely(goes_on_from_text(wr.reply, wr.reply_n, GATEWAY_PREFIX)) and not interest_has_come(wr, now):
        return True
    if goes_on_from_text(wr.reply, wr.reply_n, REPLY_PREFIX):
        return requester_listens(o, wr)
    generation = sl_generation_at(o.stream.account.sublist, wr.slot)
    if wr.generation == generation:
        return True
    if not o.stream.account.sublist.has_interest(wr.reply, wr.reply_n):
        return False
    wr.generation = generation
    return True


cdef bint interest_has_come(WaitingRequest *wr, int64_t now) noexcept nogil:
    """Return whether the requester's interest, which is of another cluster, is known here by now: then go by the plain
    reply. A reply that is another server's, to a service import, stays as it is."""
    cdef Slice reply, plain
    reply.p = wr.reply
    reply.n = wr.reply_n
    plain = plain_reply(&reply)
    if now - wr.received < INTEREST_COMES or is_service_reply(plain.p, plain.n):
        return False
    wr.reply_n = <uint32_t> plain.n
    memmove(wr.reply, plain.p, plain.n)
    wr.slot = sl_generation_slot(wr.reply, wr.reply_n)
    wr.generation = 0
    return True


cdef bint requester_listens(ConsumerState o, const WaitingRequest *wr) noexcept nogil:
    """Return whether the original reply subject of a request through a service import has a subscriber."""
    cdef char[REPLY_ROOM] one, other
    cdef char *subject = one
    cdef char *to = other
    cdef size_t n = wr.reply_n
    cdef void *account = <void *> o.stream.account
    cdef void *before
    cdef char *swap
    cdef Expected *e
    cdef int _hops
    if n > REPLY_ROOM:
        return False
    memcpy(subject, wr.reply, n)
    for _hops in range(MAX_HOPS):
        if not goes_on_from_text(subject, n, REPLY_PREFIX):
            break
        before = account
        pthread_mutex_lock(&(<Account> before).lock)
        e = replymap_find(&(<Account> before).responses, subject, n)
        n = e.other_n if e != NULL and e.other_n <= REPLY_ROOM else 0
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


cdef void forget_request(ConsumerState o, WaitingRequest *wr) noexcept nogil:
    """Take a request out of the queue, and free it."""
    if wr.announced:
        o.log.tell(o, wr, False)
    waitq_remove(&o.waiting, wr)


cdef void announce_requests(ConsumerState o) noexcept nogil:
    cdef WaitingRequest *wr = o.waiting.head
    if o.log.tell == NULL:
        return
    while wr != NULL and o.waiting.unannounced:
        if not wr.announced:
            o.log.tell(o, wr, True)
            o.waiting.unannounced -= wr.announced
        wr = wr.next


cdef void end_request(ConsumerState o, WaitingRequest *wr, const char *text) noexcept nogil:
    """End a request with a status, and free it."""
    outq_ended(&o.out, wr.reply, wr.reply_n, text, wr.n, wr.b)
    forget_request(o, wr)


cdef WaitingRequest *next_waiting(ConsumerState o, PollState *ps, size_t size, int64_t npc) noexcept nogil:
    cdef WaitingRequest *wr
    cdef uint32_t cycled = 0
    cdef bint removed, assigned
    while o.waiting.head != NULL:
        wr = o.waiting.head
        if wr.expires and ps.now >= wr.expires:
            end_request(o, wr, b"408 Request Timeout")
            continue
        removed = assigned = False
        if not may_be_served(o, ps, wr, npc, &removed, &assigned):
            if not removed:
                waitq_cycle(&o.waiting)
                cycled += 1
                if cycled >= o.waiting.n:
                    return NULL
            continue
        if wr.b > 0:
            if <int64_t> size > wr.b:
                end_request(o, wr, b"409 Message Size Exceeds MaxBytes")
                if assigned:
                    unassign_pin(&o.pin)
                continue
            wr.b -= <int64_t> size
            if wr.b == 0:
                waitq_set_n(&o.waiting, wr, 1)   # its bytes are used up: this message is its last
        if not request_has_interest(o, wr, ps.now):
            forget_request(o, wr)
            continue
        return waitq_pop(&o.waiting)
    return NULL


cdef bint may_be_served(
    ConsumerState o, PollState *ps, WaitingRequest *wr, int64_t npc, bint *removed, bint *assigned
) noexcept nogil:
    """Return whether the pin, or the request's overflow thresholds, let it have the next message. Set removed[0] when
    this ends the request, assigned[0] when this gives the request a new pin."""
    if o.cfg.priority_policy == PRIORITY_PINNED:
        if not o.pin.held and (not wr.has_group or wr.id_n == 0):
            assign_new_pin(o, ps, wr)
            assigned[0] = o.pin.held
        elif wr.has_group and has_pin(&o.pin, wr.id, wr.id_n):
            pass
        elif o.pin.held and (not wr.has_group or wr.id_n == 0):
            return False
        else:
            end_request(o, wr, b"423 Nats-Wrong-Pin-Id")
            removed[0] = True
            return False
    elif o.cfg.priority_policy == PRIORITY_OVERFLOW and wr.has_group:
        if (wr.min_pending > 0 or wr.min_ack_pending > 0) and not (
            0 < wr.min_pending <= npc or 0 < wr.min_ack_pending <= <int64_t> o.stored.pending.n
        ):
            return False
    return True


cdef void assign_new_pin(ConsumerState o, PollState *ps, WaitingRequest *wr) noexcept nogil:
    if not wr.has_group:
        return
    pin_assign(&o.pin, ps, o.cfg.pinned_ttl)
    memcpy(wr.id, o.pin.id, PIN_N)
    wr.id_n = PIN_N
    notify(o, CONSUMER_PINNED, 0, 0, 0, 0, o.pin.id, PIN_N)


# -- waiting requests --------------------------------------------------------------------------------------------------

cdef int64_t asked_before(ConsumerState o, int64_t now) noexcept nogil:
    """Return the number of messages that live requests wait for."""
    # Look at all requests once a batch, however many requests come in it.
    if o.looked_at != now:
        process_waiting(o, False, now)
    return <int64_t> o.waiting.asked


cdef void process_waiting(ConsumerState o, bint eos, int64_t now) noexcept nogil:
    cdef WaitingRequest *wr = o.waiting.head
    cdef WaitingRequest *following
    o.looked_at = now
    o.waiting.due = 0
    while wr != NULL:
        following = wr.next
        if wr.expires and now >= wr.expires:
            end_request(o, wr, b"408 Request Timeout")
        elif eos and wr.no_wait and (wr.expires == 0 or wr.d > 0):
            outq_status(&o.out, wr.reply, wr.reply_n, NULL, 0, b"404 No Messages", b"")
            forget_request(o, wr)
        elif not request_has_interest(o, wr, now):
            forget_request(o, wr)
        else:
            if wr.hbt:
                if now >= wr.hbt:
                    send_idle_heartbeat(o, wr.reply, wr.reply_n)
                    wr.hbt = heartbeat_after(now, wr.hb)
                waitq_due(&o.waiting, wr.hbt)
            waitq_due(&o.waiting, wr.expires)
        wr = following


cdef void send_idle_heartbeat(ConsumerState o, const char *dest, size_t n) noexcept nogil:
    cdef char[FIELDS_ROOM] fields
    cdef int at = snprintf(
        fields, 128, b"Nats-Last-Consumer: %llu\r\nNats-Last-Stream: %llu\r\n",
        <unsigned long long> (o.dseq - 1), <unsigned long long> (o.sseq - 1))
    if o.flow.fcid_n:
        snprintf(
            fields + at, FIELDS_ROOM - at, b"Nats-Consumer-Stalled: %.*s\r\n", <int> o.flow.fcid_n, o.flow.fcid)
    outq_status(&o.out, dest, n, NULL, 0, b"100 Idle Heartbeat", fields)
