"""Deliver to connections of other pollers; see remote.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from gnats.core.accounts.guard cimport NOTE_REPLIES, note_reply
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.encode cimport Frame, frame_size, put_frame, queue_frame
from gnats.core.messages.message cimport Message
from gnats.core.net.connection cimport SLOW_CONSUMER_PENDING_BYTES, Connection
from gnats.core.net.connectionbase cimport ConnectionBase
from gnats.core.net.outbound cimport (
    OutMark,
    OutQueue,
    outq_append,
    outq_clear,
    outq_commit,
    outq_drop,
    outq_mark,
    outq_merge,
    outq_pour,
    outq_reserve,
    outq_rollback,
    outq_take,
)
from gnats.core.net.pollstate cimport PollState, hand_over_first, poller_bit
from gnats.core.routing.delivery cimport (
    EGRESS_AUTO_UNSUBSCRIBED,
    EGRESS_CLIENT_CLOSED,
    EGRESS_NO_STALL,
    EGRESS_OK,
    EGRESS_SUB_CLOSED,
    Egress,
    is_dropped,
    note_shown,
    reply_of,
    trace_out,
)
from gnats.core.runtime.kinds cimport JETSTREAM
from gnats.core.runtime.slice cimport Slice
from gnats.core.runtime.state cimport MAX_POLLERS, ServerState
from gnats.core.subjects.sublist cimport Subscription
from gnats.includes.arrays cimport array_grow
from gnats.includes.atomics cimport addi64_seq, load64, load8, loadi64, store8, store8_release, unlikely
from gnats.includes.layout cimport static_assert
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    KEEP_BELOW = 4096      # bytes of a frame; copying a longer one costs more than a lock
    CHAIN_FROM = 16384     # bytes; fewer are copied to the end of `remote`, so that a slow consumer's chunks are full
    HAND_OVER_AT = 65536   # bytes kept for one connection; more are handed over at once, while memory is hot
    FIRST_RUNS = 16

# PollState.handing has a bit for each place.
static_assert(PLACES <= 8 * sizeof(uint64_t))


cdef inline uint32_t place_of(const void *c) noexcept nogil:
    return <uint32_t> ((<size_t> c >> 6) * <uint64_t> 0x9E3779B97F4A7C15 >> (64 - PLACE_BITS))


cdef Egress deliver_remote(Subscriber c, const Message *m, Subscription *s, const Frame *f) noexcept nogil:
    cdef PollState *ps = m.ps
    cdef uint32_t place = place_of(<void *> c)
    cdef Handoffs *handoffs
    cdef Handoff *h
    if unlikely(ps.handoffs == NULL) and not make_handoffs(ps):
        return deliver_now(c, m, s, f)
    handoffs = <Handoffs *> ps.handoffs
    h = &handoffs.at[place]
    if (
        h.client == <void *> c and h.batch == ps.wakeups and handoffs.shown.data != m.data
        and may_wait(c, m, s, f) and keep(h, ps, m, s, f)
    ):
        ps.handing |= <uint64_t> 1 << place
        if unlikely((<ConnectionBase> m.origin).trace):
            trace_out(c, <ConnectionBase> m.origin, f)
        if h.frames.bytes >= HAND_OVER_AT:
            note_shown(m)
            hand_over(ps)
        return EGRESS_OK
    hand_over_first(ps)   # what was published before
    note_shown(m)
    h.client = <void *> c
    h.batch = ps.wakeups
    return deliver_now(c, m, s, f)


cdef bint make_handoffs(PollState *ps) noexcept nogil:
    ps.handoffs = calloc(1, sizeof(Handoffs))
    ps.hand_over = hand_over
    return ps.handoffs != NULL


cdef inline bint may_wait(Subscriber c, const Message *m, const Subscription *s, const Frame *f) noexcept nogil:
    """Return whether to keep the message for later, because nothing depends on its delivery.

    A kept message is dropped when its subscription ends meanwhile. That would be wrong where another member of a queue
    group would get it instead, a requester a 503, or a consumer would deliver it again. A producer must be stalled at
    once.
    """
    return (
        (s == NULL or (s.queue_len == 0 and loadi64(<int64_t *> &s.max) <= 0))
        and m.reply.p == NULL and m.trace == NULL and (<Connection> m.origin).kind != JETSTREAM
        and frame_size(f) < KEEP_BELOW
        and not load8(&c.closing) and not load8(&c.gated)
    )


cdef inline bint keep(
    Handoff *h, PollState *ps, const Message *m, Subscription *s, const Frame *f
) noexcept nogil:
    cdef size_t total = frame_size(f)
    cdef Run *run = &h.runs[h.n - 1] if h.n else NULL
    cdef char *p
    if run == NULL or run.sub != s or run.size != total or run.payload != f.size:
        if h.n == h.cap and not array_grow(&h.runs, &h.cap, FIRST_RUNS, sizeof(Run)):
            return False
        run = &h.runs[h.n]
        run.sub = s
        run.size = <uint32_t> total
        run.payload = <uint32_t> f.size
        run.n = 0
    p = outq_reserve(&h.frames, &ps.pool, total)
    if p == NULL:
        return False
    put_frame(p, f)
    outq_commit(&h.frames, total)
    if run.n == 0:
        h.n += 1
    run.n += 1
    h.producer = m.origin
    return True


cdef Egress deliver_now(Subscriber c, const Message *m, Subscription *s, const Frame *f) noexcept nogil:
    cdef PollState *ps = m.ps
    cdef int64_t nm = 0, max = 0
    cdef bint wake = False, over = False, dropped
    cdef Slice reply
    pthread_mutex_lock(&c.lock)
    if c.refused:
        pthread_mutex_unlock(&c.lock)
        return EGRESS_CLIENT_CLOSED
    if s != NULL:
        # Count under the lock: when a poller counts the last message, all messages before it are queued.
        max = loadi64(&s.max)
        if load8(&s.closed):
            pthread_mutex_unlock(&c.lock)
            return EGRESS_SUB_CLOSED
        nm = addi64_seq(&s.nm, 1) + 1
        if max > 0 and nm > max:
            pthread_mutex_unlock(&c.lock)
            return EGRESS_AUTO_UNSUBSCRIBED
    dropped = is_dropped(c, m)
    if not dropped:
        wake = c.remote.head == NULL
        if not queue_frame(&c.remote, &ps.pool, f):
            c.refuse_out_of_memory()
            pthread_mutex_unlock(&c.lock)
            signal_after_batch(c, ps)
            return EGRESS_CLIENT_CLOSED
        store8_release(&c.has_remote, 1)
        c.remote_msgs += 1
        c.remote_bytes += f.size
        if unlikely(load8(&c.guard.checks) & NOTE_REPLIES) and m.reply.p != NULL:
            reply = reply_of(c, m)
            if not note_reply(&c.guard, ps, &reply):
                c.refuse_out_of_memory()
                wake = True
        over = check_pending(c, &wake)
        if unlikely((<ConnectionBase> m.origin).trace):
            trace_out(c, <ConnectionBase> m.origin, f)
    if max > 0 and nm == max:
        wake = True
        exhaust(c, s)
    pthread_mutex_unlock(&c.lock)
    if over:
        c.stall(<Connection> m.origin)
    if wake:
        signal_after_batch(c, ps)
    return EGRESS_NO_STALL if dropped else EGRESS_OK


cdef inline bint check_pending(Subscriber c, bint *wake) noexcept nogil:
    """Close a connection with too much pending. Return whether its producer must pause. The lock is held."""
    cdef size_t pending = load64(&c.backlog) + c.remote.bytes
    if pending > c.max_pending:
        c.refuse_more(SLOW_CONSUMER_PENDING_BYTES)
        wake[0] = True
    elif pending > c.gate:
        wake[0] = True
        return True
    return False


cdef void exhaust(Subscriber c, Subscription *s) noexcept nogil:
    """End a subscription that has got its last message; its owner removes it. The lock is held."""
    store8(&s.closed, 1)
    if c.nreap == c.reap_cap and not array_grow(&c.reap, &c.reap_cap, 8, sizeof(Subscription *)):
        c.refuse_out_of_memory()
        return
    c.reap[c.nreap] = s
    c.nreap += 1


cdef void signal_after_batch(Subscriber c, PollState *ps) noexcept nogil:
    if ps.ntouched == ps.touched_cap and not array_grow(&ps.touched, &ps.touched_cap, 64, sizeof(void *)):
        c.signal_owner()
        return
    ps.touched[ps.ntouched] = <void *> c
    ps.ntouched += 1


# -- handing over ------------------------------------------------------------------------------------------------------

cdef void hand_over(PollState *ps) noexcept nogil:
    """Queue all kept messages to their connections.

    Those of several connections become visible together: no poller merges a `remote` in between, or a client could
    answer one message before another one, published earlier, is queued.
    """
    cdef Handoff *handoffs = (<Handoffs *> ps.handoffs).at
    cdef uint64_t handing = ps.handing, receivers = 0
    cdef bint several = handing & (handing - 1) != 0
    cdef uint32_t i
    ps.handing = 0
    if several:
        for i in range(PLACES):
            if handing >> i & 1:
                receivers |= poller_bit((<Connection> handoffs[i].client).ps)
        lock_receivers(<ServerState> ps.state, receivers)
    for i in range(PLACES):
        if handing >> i & 1:
            hand_over_kept(<Subscriber> handoffs[i].client, &handoffs[i], ps)
    if several:
        unlock_receivers(<ServerState> ps.state, receivers)


cdef void lock_receivers(ServerState server, uint64_t receivers) noexcept nogil:
    """Lock pollers in the order of their indices, as every sender does."""
    cdef uint32_t i
    for i in range(MAX_POLLERS):
        if receivers >> i & 1:
            pthread_mutex_lock(&(<PollState *> server.pollers[i]).receiving)


cdef void unlock_receivers(ServerState server, uint64_t receivers) noexcept nogil:
    cdef uint32_t i
    for i in range(MAX_POLLERS):
        if receivers >> i & 1:
            pthread_mutex_unlock(&(<PollState *> server.pollers[i]).receiving)


cdef void hand_over_kept(Subscriber c, Handoff *h, PollState *ps) noexcept nogil:
    """Queue the messages kept for a connection."""
    cdef bint wake, over = False
    cdef size_t i
    pthread_mutex_lock(&c.lock)
    wake = c.remote.head == NULL
    if c.refused:
        wake = False
    elif all_open(h):
        for i in range(h.n):
            if h.runs[i].sub != NULL:
                addi64_seq(&h.runs[i].sub.nm, h.runs[i].n)
            c.remote_msgs += h.runs[i].n
            c.remote_bytes += <uint64_t> h.runs[i].n * h.runs[i].payload
        if h.frames.bytes >= CHAIN_FROM or not outq_pour(&c.remote, &h.frames, &ps.pool):
            outq_merge(&c.remote, &h.frames, &ps.pool)
        store8_release(&c.has_remote, 1)
        over = check_pending(c, &wake)
    else:
        hand_over_some(c, h, ps)
        wake = True
        over = check_pending(c, &wake)
    pthread_mutex_unlock(&c.lock)
    outq_clear(&h.frames, &ps.pool)
    h.n = 0
    if over:
        c.stall(<Connection> h.producer)
    if wake:
        signal_after_batch(c, ps)


cdef inline bint all_open(const Handoff *h) noexcept nogil:
    """Return whether every subscription takes all its messages. The lock is held: none is ended meanwhile."""
    cdef const Subscription *s
    cdef size_t i
    for i in range(h.n):
        s = h.runs[i].sub
        if s != NULL and (load8(&s.closed) or loadi64(&s.max) > 0):
            return False
    return True


cdef void hand_over_some(Subscriber c, Handoff *h, PollState *ps) noexcept nogil:
    """Queue what is for open subscriptions, up to their last message. The lock is held."""
    cdef Subscription *s
    cdef int64_t nm, max
    cdef uint32_t _
    cdef size_t i
    for i in range(h.n):
        s = h.runs[i].sub
        for _ in range(h.runs[i].n):
            max = loadi64(&s.max)
            if load8(&s.closed):
                outq_drop(&h.frames, &ps.pool, h.runs[i].size)
                continue
            nm = addi64_seq(&s.nm, 1) + 1
            if max > 0 and nm > max:
                outq_drop(&h.frames, &ps.pool, h.runs[i].size)
                continue
            if not move_frame(&c.remote, &h.frames, ps, h.runs[i].size):
                c.refuse_out_of_memory()
                return
            c.remote_msgs += 1
            c.remote_bytes += h.runs[i].payload
            store8_release(&c.has_remote, 1)
            if max > 0 and nm == max:
                exhaust(c, s)


cdef bint move_frame(OutQueue *to, OutQueue *kept, PollState *ps, size_t n) noexcept nogil:
    cdef char[KEEP_BELOW] frame
    cdef OutMark mark = outq_mark(to)
    if outq_append(to, &ps.pool, frame, outq_take(kept, &ps.pool, frame, n)) == 0:
        return True
    outq_rollback(to, &ps.pool, &mark)
    return False


cdef void handoffs_free(PollState *ps) noexcept nogil:
    cdef Handoffs *handoffs = <Handoffs *> ps.handoffs
    cdef size_t i
    if handoffs == NULL:
        return
    for i in range(PLACES):
        outq_clear(&handoffs.at[i].frames, &ps.pool)
        free(handoffs.at[i].runs)
    free(handoffs)
    ps.handoffs = NULL
