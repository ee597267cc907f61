"""What a connection may do; see guard.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport strlen

from gnats.core.connection cimport CTL_PERMISSIONS, READ_ERROR, WRITE_ERROR, Connection
from gnats.core.permissions cimport Permissions
from gnats.core.pollstate cimport PollState
from gnats.core.quiesce cimport qs_advance, qs_passed
from gnats.core.quoting cimport quote, quote_room
from gnats.core.records cimport (
    LOG_PUBLISH_VIOLATION,
    LOG_SUBSCRIPTION_REMOVED,
    LOG_SUBSCRIPTION_VIOLATION,
)
from gnats.core.replies cimport replies_free, replies_new, replies_note, replies_use
from gnats.core.slice cimport Slice
from gnats.core.sublist cimport Subscription, sub_queue, sub_sid, sub_subject
from gnats.core.verdicts cimport verdict_deliver, verdict_publish
from gnats.includes.atomics cimport load8, load_ptr_acquire, store8, store_ptr_release
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.includes.text cimport put, put_text


cdef class Guarded(Connection):
    """A connection with permissions; see Client."""

    def __dealloc__(self):
        replies_free(self.replies)

    def set_permissions(self, Permissions permissions) -> None:
        """Permissions from now on, None for all: the client loses the subscriptions it may not have any more, and
        hears of each. What it was allowed to answer is forgotten. Raises MemoryError."""
        self.stage_permissions(permissions)
        self.request(CTL_PERMISSIONS, 0)

    cdef int stage_permissions(self, Permissions permissions) except -1:
        cdef void *current
        cdef void *staged
        cdef uint64_t replaced
        cdef list keep = []
        pthread_mutex_lock(&self.lock)
        current = self.permissions
        staged = self.staged_permissions
        replaced = self.replaced
        pthread_mutex_unlock(&self.lock)
        if qs_passed(replaced):
            for kept in self.keep:
                if not isinstance(kept, Permissions) or <void *> kept == current or <void *> kept == staged:
                    keep.append(kept)
            self.keep = keep
        if permissions is not None and not any(kept is permissions for kept in self.keep):
            self.keep.append(permissions)
        pthread_mutex_lock(&self.lock)
        self.staged_permissions = NULL if permissions is None else <void *> permissions
        pthread_mutex_unlock(&self.lock)
        return 0

    cdef void install_permissions(self) noexcept nogil:
        """Take over what was staged. Deliveries are checked at first; see filter_deliveries."""
        cdef uint8_t checks = 0
        cdef void *p
        cdef bint failed = False
        pthread_mutex_lock(&self.lock)
        replies_free(self.replies)
        self.replies = NULL
        p = self.staged_permissions
        if p != NULL:
            if (<Permissions> p).restricts_delivery:
                checks |= CHECK_DELIVERIES
            if (<Permissions> p).responses:
                self.replies = replies_new((<Permissions> p).max_responses, (<Permissions> p).response_expires)
                checks |= NOTE_REPLIES
                failed = self.replies == NULL
        store_ptr_release(&self.permissions, p)
        store8(&self.checks, checks)
        self.replaced = qs_advance()
        pthread_mutex_unlock(&self.lock)
        if failed:
            self.out_of_memory(READ_ERROR)

    cdef void apply_permissions(self) noexcept nogil:
        """Take new permissions; what is subscribed and not allowed by them goes (processSubsOnConfigReload)."""
        cdef Subscription **removed = NULL
        cdef Subscription *s
        cdef uint32_t i, n = 0
        cdef bint filtered = False
        self.install_permissions()
        if self.permissions == NULL or load8(&self.closing):
            return
        if self.subs.n:
            removed = <Subscription **> malloc(self.subs.n * sizeof(Subscription *))
            if removed == NULL:
                self.out_of_memory(READ_ERROR)
                return
            for i in range(self.subs.mask + 1):
                s = self.subs.slots[i]
                while s != NULL:
                    if self.may_subscribe(sub_subject(s), s.subject_len, sub_queue(s), s.queue_len):
                        filtered = filtered or (<Permissions> self.permissions).needs_filter(
                            sub_subject(s), s.subject_len, s.queue_len)
                    else:
                        removed[n] = s
                        n += 1
                    s = s.next
        self.filter_deliveries(filtered)
        for i in range(n):
            if load8(&self.closing):
                break
            self.unsubscribe(removed[i])
            self.report_removed(removed[i])
        free(removed)

    cdef void filter_deliveries(self, bint needed) noexcept nogil:
        store8(&self.checks, self.checks | CHECK_DELIVERIES if needed else self.checks & ~CHECK_DELIVERIES)

    cdef void unsubscribe(self, Subscription *s) noexcept nogil:
        pass

    # -- what the client sends -----------------------------------------------------------------------------------

    cdef bint may_publish(self, const Slice *subject) noexcept nogil:
        cdef bint allowed
        if not (<Permissions> self.permissions).restricts_publish:
            return True
        if verdict_publish(
            &self.ps.verdicts, <Permissions> self.permissions, self.kind, subject.p, subject.n
        ):
            return True
        if not (<Permissions> self.permissions).responses:
            return False
        pthread_mutex_lock(&self.lock)
        allowed = self.replies != NULL and replies_use(self.replies, subject.p, subject.n, self.ps.now)
        pthread_mutex_unlock(&self.lock)
        return allowed

    cdef bint may_subscribe(self, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil:
        """Whether it is allowed; if so, deliveries are checked from now on where they must be."""
        if self.permissions == NULL:
            return True
        if not (<Permissions> self.permissions).can_subscribe(self.kind, subject, n, queue, qn):
            return False
        if not self.checks & CHECK_DELIVERIES and (<Permissions> self.permissions).needs_filter(subject, n, qn):
            self.filter_deliveries(True)
        return True

    cdef void refuse_publish(self, const Slice *subject) noexcept nogil:
        self.send_err_quoting(b"Permissions Violation for Publish to ", subject.p, subject.n, NULL, NULL, 0)
        self.log(LOG_PUBLISH_VIOLATION, 0, subject.p, subject.n)

    cdef void refuse_subscription(
        self, const Slice *subject, const Slice *queue, const Slice *sid
    ) noexcept nogil:
        cdef const char *what = b"Permissions Violation for Subscription to "
        if queue.n:
            self.send_err_quoting(what, subject.p, subject.n, b" using queue ", queue.p, queue.n)
        else:
            self.send_err_quoting(what, subject.p, subject.n, NULL, NULL, 0)
        log_subscription(self, LOG_SUBSCRIPTION_VIOLATION, subject, queue, sid)

    cdef void report_removed(self, const Subscription *s) noexcept nogil:
        """Tell the client and the log of a subscription that new permissions have ended."""
        cdef Slice subject, queue, sid
        cdef const char *violation = b"Permissions Violation for Subscription to "
        cdef const char *in_group = b" using queue "
        cdef const char *under = b" (sid "
        cdef const char *end = b")"
        cdef char *text = <char *> malloc(
            strlen(violation) + quote_room(s.subject_len) + strlen(in_group) + quote_room(s.queue_len)
            + strlen(under) + quote_room(s.sid_len) + strlen(end) + 1)
        cdef char *p
        subject.p = <char *> sub_subject(s)
        subject.n = s.subject_len
        queue.p = <char *> sub_queue(s)
        queue.n = s.queue_len
        sid.p = <char *> sub_sid(s)
        sid.n = s.sid_len
        if text == NULL:
            self.out_of_memory(WRITE_ERROR)
        else:
            p = quote(put_text(text, violation), subject.p, subject.n)
            if queue.n:
                p = quote(put_text(p, in_group), queue.p, queue.n)
            p = quote(put_text(p, under), sid.p, sid.n)
            put_text(p, end)[0] = 0
            self.send_err(text)
            free(text)
        log_subscription(self, LOG_SUBSCRIPTION_REMOVED, &subject, &queue, &sid)

    # -- what the client is sent: any poller ---------------------------------------------------------------------

    cdef bint delivery_denied(self, PollState *ps, const Slice *subject, const Subscription *s) noexcept nogil:
        cdef void *p = load_ptr_acquire(&self.permissions)
        return p != NULL and not verdict_deliver(
            &ps.verdicts, <Permissions> p, subject.p, subject.n, sub_queue(s), s.queue_len)

    cdef bint note_reply(self, PollState *ps, const Slice *reply) noexcept nogil:
        if self.replies == NULL or self.permissions == NULL:
            return True
        if verdict_publish(&ps.verdicts, <Permissions> self.permissions, self.kind, reply.p, reply.n):
            return True
        return replies_note(self.replies, reply.p, reply.n, ps.now)


cdef void log_subscription(
    Connection c, int code, const Slice *subject, const Slice *queue, const Slice *sid
) noexcept nogil:
    cdef size_t n = subject.n + queue.n + sid.n + 2
    cdef char *data = <char *> malloc(n)
    cdef char *p = data
    if data == NULL:
        return
    p = put(put(p, subject.p, subject.n), b"\0", 1)
    p = put(put(p, queue.p, queue.n), b"\0", 1)
    put(p, sid.p, sid.n)
    c.log(code, 0, data, n)
    free(data)
