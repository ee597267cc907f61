"""The permissions of a session; see guard.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t
from libc.string cimport memset

from gnats.core.auth.permission_cache cimport verdict_deliver, verdict_publish
from gnats.core.auth.permissions cimport Permissions
from gnats.core.auth.replies cimport replies_free, replies_new, replies_note, replies_use
from gnats.core.messages.reserved cimport plain_reply
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.kinds cimport LEAF
from gnats.core.runtime.quiesce cimport qs_advance
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription, sub_queue
from gnats.includes.atomics cimport load8, load_ptr_acquire, store8, store_ptr_release
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock


cdef void guard_init(Guard *g, uint8_t kind, pthread_mutex_t *lock) noexcept nogil:
    memset(g, 0, sizeof(Guard))
    g.kind = kind
    g.lock = lock


cdef void guard_free(Guard *g) noexcept nogil:
    replies_free(g.replies)
    g.replies = NULL


cdef void *guard_next(Guard *g) noexcept nogil:
    pthread_mutex_lock(g.lock)
    g.coming = g.staged
    pthread_mutex_unlock(g.lock)
    return g.coming


cdef bint guard_install(Guard *g, uint8_t checks) noexcept nogil:
    cdef void *p = g.coming
    cdef bint failed = False
    pthread_mutex_lock(g.lock)
    guard_free(g)
    if p != NULL:
        # A leaf node is sent messages as if it published them; what it may hear of is CHECK_DENIALS.
        if (<Permissions> p).restricts_publish if g.kind == LEAF else (<Permissions> p).restricts_delivery:
            checks |= CHECK_DELIVERIES
        if (<Permissions> p).responses:
            g.replies = replies_new((<Permissions> p).max_responses, (<Permissions> p).response_expires)
            checks |= NOTE_REPLIES
            failed = g.replies == NULL
    store_ptr_release(&g.permissions, p)
    store8(&g.checks, checks)
    g.replaced = qs_advance()
    pthread_mutex_unlock(g.lock)
    return not failed


cdef void guard_filter(Guard *g, bint needed) noexcept nogil:
    store8(&g.checks, g.checks | CHECK_DELIVERIES if needed else g.checks & ~CHECK_DELIVERIES)


cdef void guard_denials(Guard *g) noexcept nogil:
    store8(&g.checks, g.checks | CHECK_DELIVERIES | CHECK_DENIALS)


cdef bint may_publish(Guard *g, PollState *ps, const Slice *subject) noexcept nogil:
    return not (<Permissions> g.permissions).restricts_publish or is_allowed(
        g, ps, <Permissions> g.permissions, subject)


cdef bint is_allowed(Guard *g, PollState *ps, Permissions permissions, const Slice *subject) noexcept nogil:
    """Return whether these permissions, or a reply, allow to publish to a subject."""
    if verdict_publish(&ps.verdicts, permissions, g.kind, subject.p, subject.n):
        return True
    return permissions.responses and may_reply(g, ps, subject)


cdef bint may_reply(Guard *g, PollState *ps, const Slice *subject) noexcept nogil:
    cdef bint allowed
    pthread_mutex_lock(g.lock)
    allowed = g.replies != NULL and replies_use(g.replies, subject.p, subject.n, ps.now)
    pthread_mutex_unlock(g.lock)
    return allowed


cdef bint may_subscribe(Guard *g, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil:
    if g.permissions == NULL:
        return True
    if not (<Permissions> g.permissions).can_subscribe(g.kind, subject, n, queue, qn):
        return False
    if not g.checks & CHECK_DELIVERIES and (<Permissions> g.permissions).needs_filter(subject, n, qn):
        guard_filter(g, True)
    return True


cdef bint delivery_denied(Guard *g, PollState *ps, const Slice *subject, const Subscription *s) noexcept nogil:
    cdef void *p = load_ptr_acquire(&g.permissions)
    cdef Slice plain
    if p == NULL:
        return False
    if (g.kind != LEAF or load8(&g.checks) & CHECK_DENIALS) and not verdict_deliver(
        &ps.verdicts, <Permissions> p, subject.p, subject.n, sub_queue(s), s.queue_len
    ):
        return True
    if g.kind != LEAF:
        return False
    plain = plain_reply(subject)
    # To a leaf node it is delivered as if it were published there (deliverMsg).
    return not is_allowed(g, ps, <Permissions> p, &plain)


cdef bint note_reply(Guard *g, PollState *ps, const Slice *reply) noexcept nogil:
    if g.replies == NULL or g.permissions == NULL:
        return True
    if g.kind != LEAF and verdict_publish(&ps.verdicts, <Permissions> g.permissions, g.kind, reply.p, reply.n):
        return True
    return replies_note(g.replies, reply.p, reply.n, ps.now)
