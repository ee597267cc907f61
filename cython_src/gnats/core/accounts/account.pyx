"""The data plane's half of an account; see account.pxd."""
import cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset, strlen

from gnats.core.accounts.link_traffic cimport LinkCounts, LinkTraffic, link_place, link_traffic_new
from gnats.core.accounts.mappings cimport Mappings, mappings_compile
from gnats.core.messages.message cimport MessageHandler, NativeSub, native_sub
from gnats.core.messages.reserved cimport REPLY_PREFIX, REPLY_PREFIX_N
from gnats.core.messages.responses cimport (
    DONE,
    EXPECTED,
    LEFT,
    MAX_BYTES,
    MAX_EXPECTED,
    MAX_STRAYS,
    SINGLETON,
    Expected,
    Queue,
    ServiceExport,
    expected_key,
    expected_new,
    expected_other,
    export_hold,
    export_release,
    queue_drop,
    queue_push,
    replymap_add,
    replymap_find,
    replymap_free,
    replymap_remove,
    waiting_add,
    waiting_free,
    waiting_remove,
)
from gnats.core.net.pollstate cimport PollState
from gnats.core.runtime.clock cimport monotonic_ns
from gnats.core.runtime.kinds cimport ACCOUNT, GATEWAY, LEAF, ROUTER
from gnats.core.runtime.moment cimport moment_of
from gnats.core.runtime.quiesce cimport qs_retire
from gnats.core.runtime.state cimport ServerState
from gnats.core.subjects cimport notifications
from gnats.core.subjects.notifications cimport Notification
from gnats.core.subjects.subject cimport hash_seed_a, hash_seed_b, match_literal, mul_mix, subject_has_wildcard
from gnats.core.subjects.sublist cimport (
    SL_OK,
    SUB_RESPONSES,
    InterestSink,
    MatchResult,
    Sublist,
    Subscription,
    sub_new,
    sub_row,
)
from gnats.core.subjects.transform cimport SubjectTransform, transform_copy
from gnats.includes.atomics cimport (
    exchange8,
    exchange64,
    load8,
    load64,
    load_ptr_acquire,
    store32,
    store8,
    store64,
    store_ptr_release,
)
from gnats.includes.base62 cimport BASE, DIGITS
from gnats.includes.layout cimport static_assert
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from gnats.includes.text cimport put_text

from weakref import WeakSet

cdef enum:
    SUFFIX = 6     # random characters
    PREFIX = REPLY_PREFIX_N + SUFFIX + 1    # bytes of `_R_.xxxxxx.`


cdef void put_random(char *out, uint64_t random) noexcept nogil:
    """Write six digits that cannot be guessed from outside."""
    cdef int i
    random = mul_mix(random ^ hash_seed_a, hash_seed_b)
    for i in range(SUFFIX):
        out[i] = DIGITS[random % BASE]
        random //= 62


@cython.no_gc_clear
cdef class Account:
    """An isolated subject space; `sublist` holds its subscriptions."""

    def __cinit__(self, *args, **kwargs):
        pthread_mutex_init(&self.lock, NULL)
        self.sublist = Sublist()
        self.peers = []
        self.set_identity(b"", b"", b"")

    def __dealloc__(self):
        if self.responder != NULL:
            self.remove(self.responder)
            free(native_sub(self.responder))
        notifications.notifications_free(self.sublist, &self.notifications)
        replymap_free(&self.responses)
        waiting_free(&self.reverse)
        drop_streams(self.streams)
        free(self.mappings)
        free(self.trace_dest)
        free(self.link_traffic)
        pthread_mutex_destroy(&self.lock)

    def set_identity(self, bytes name not None, bytes info_name not None, bytes server_hash not None) -> None:
        """Set the account's name, and the one that requests to other accounts carry, a JSON string.

        `server_hash` marks the reply subjects of measured requests. Call it before the account has clients.
        """
        cdef bytes tracked = b"." + server_hash + b".T" if server_hash else b""
        self.identity = name + info_name + tracked
        self.name.p = PyBytes_AS_STRING(self.identity)
        self.name.n = len(name)
        self.info_name.p = self.name.p + self.name.n
        self.info_name.n = len(info_name)
        self.tracked.p = self.info_name.p + self.info_name.n
        self.tracked.n = len(tracked)

    def link_traffic_of(self) -> dict:
        """Return the messages over links by kind of link: (msgs received, bytes received, msgs sent, bytes sent).

        What has come from leaf nodes is not in it: their connections count it.
        """
        return {
            "gateways": self.sum_traffic(GATEWAY),
            "routes": self.sum_traffic(ROUTER),
            "leafs": self.sum_traffic(LEAF),
        }

    cdef tuple sum_traffic(self, int kind):
        cdef LinkTraffic *traffic = <LinkTraffic *> load_ptr_acquire(<void **> &self.link_traffic)
        cdef uint64_t in_msgs = 0, in_bytes = 0, out_msgs = 0, out_bytes = 0
        cdef LinkCounts *counts
        cdef size_t i
        if traffic != NULL:
            for i in range(self.ncounting):
                counts = &traffic[i].of[link_place(kind)]
                in_msgs += load64(&counts.in_msgs)
                in_bytes += load64(&counts.in_bytes)
                out_msgs += load64(&counts.out_msgs)
                out_bytes += load64(&counts.out_bytes)
        return in_msgs, in_bytes, out_msgs, out_bytes

    cdef LinkTraffic *make_link_traffic(self, const PollState *ps) noexcept nogil:
        cdef LinkTraffic *traffic
        cdef size_t n = 0
        pthread_mutex_lock(&self.lock)
        traffic = self.link_traffic
        if traffic == NULL:
            traffic = link_traffic_new(<ServerState> ps.state, &n)
            self.ncounting = n
            store_ptr_release(<void **> &self.link_traffic, <void *> traffic)
        pthread_mutex_unlock(&self.lock)
        return traffic

    cdef int add_internal(self, subscriber) except -1:
        if self.internals is None:
            self.internals = WeakSet()
        self.internals.add(subscriber)
        return 0

    def set_mappings(self, list rows) -> None:
        """Replace the mappings of messages published in this account: [(source, [(SubjectTransform, upto)])].

        The first matching source decides. The first of its destinations with an `upto` above a random number from 0 to
        99 is used; without one, the message is lost. Raises MemoryError.
        """
        cdef Mappings *fresh = mappings_compile(rows) if rows else NULL
        cdef Mappings *old = <Mappings *> exchange64(<uint64_t *> &self.mappings, <uint64_t> fresh)
        if old != NULL:
            qs_retire(old)

    def set_stream_imports(self, list rows) -> None:
        """Replace the stream imports: [(exporter, subject, to, transform, use published, allow trace)].

        Existing subscriptions change when Subscriber.renew_imports() is called for each of the account's clients and
        `internals`. An import that stays keeps its shadows. Raises MemoryError.
        """
        cdef StreamImports *fresh = new_streams(self, rows) if rows else NULL
        cdef StreamImports *old
        for exporter, *_ in rows:
            self.keep(exporter)
        pthread_mutex_lock(&self.lock)
        old = self.streams
        exchange64(<uint64_t *> &self.streams, <uint64_t> fresh)
        pthread_mutex_unlock(&self.lock)
        drop_streams(old)

    def set_trace_dest(self, bytes subject not None, int sampling) -> None:
        """Trace this percentage of the messages that carry a sampled traceparent, to `subject`; b"": none.

        Raises MemoryError.
        """
        cdef TraceDest *fresh = NULL
        cdef void *old
        if subject:
            fresh = <TraceDest *> malloc(sizeof(TraceDest) + len(subject))
            if fresh == NULL:
                raise MemoryError
            fresh.sampling = sampling
            fresh.n = len(subject)
            memcpy(fresh.data, PyBytes_AS_STRING(subject), fresh.n)
        old = <void *> exchange64(<uint64_t *> &self.trace_dest, <uint64_t> fresh)
        if old != NULL:
            qs_retire(old)

    def keep(self, Account other not None) -> None:
        """Have both accounts keep each other alive, since each may come to point into the other."""
        if other is not self and other not in self.peers:
            self.peers.append(other)
            other.peers.append(self)

    def detach(self) -> None:
        """Undo keep() for all accounts. No account may point into another any more."""
        for other in self.peers:
            (<Account> other).peers.remove(self)
        self.peers.clear()

    @property
    def exchanges(self) -> bool:
        """Whether other accounts may point into this one.

        They may while it has subscriptions or stream imports, or expects or waits for responses.
        """
        cdef bint busy
        cdef Py_ssize_t own
        pthread_mutex_lock(&self.lock)
        own = self.responder != NULL
        busy = self.streams != NULL or self.responses.n != 0 or self.reverse.n != 0
        pthread_mutex_unlock(&self.lock)
        return busy or self.sublist.count() > own

    def responder_subscription(self) -> tuple | None:
        """Return (subject, queue, sid, delivered, max) of the subscription to responses; None before it is made."""
        cdef Subscription *s
        pthread_mutex_lock(&self.lock)
        s = self.responder
        pthread_mutex_unlock(&self.lock)
        return None if s == NULL else sub_row(s)

    @property
    def is_system(self) -> bool:
        """Whether this is the system account, whose clients may publish to Raft groups."""
        return load8(&self._is_system) != 0

    @is_system.setter
    def is_system(self, bint value):
        store8(&self._is_system, value)

    @property
    def pending_responses(self) -> int:
        """Number of responses that services of this account still have to send."""
        return load64(&self.nresponses)

    @property
    def pending_requests(self) -> int:
        """Number of responses that requesters of this account wait for."""
        return load64(&self.nreverse)

    # -- responses -----------------------------------------------------------------------------------------------

    cdef bint has_responder(self, MessageHandler take, uint64_t random) noexcept nogil:
        """Make the subscription to responses unless it is there. False when out of memory."""
        cdef bint made
        if load_ptr_acquire(<void **> &self.responder) != NULL:
            return True
        pthread_mutex_lock(&self.lock)
        made = self.responder != NULL or self.make_responder(take, random)
        pthread_mutex_unlock(&self.lock)
        return made

    cdef bint make_responder(self, MessageHandler take, uint64_t random) noexcept nogil:
        """Subscribe to all responses. The lock is held."""
        cdef Subscription *s
        cdef uint32_t came = moment_of(monotonic_ns())
        static_assert(PREFIX + 1 <= sizeof(self.prefix))
        static_assert(PREFIX + SUFFIX <= REPLY_ROOM)
        put_random(put_text(self.prefix, REPLY_PREFIX), random)
        self.prefix[PREFIX - 1] = c'.'
        self.prefix[PREFIX] = c'>'
        s = sub_new(NULL, ACCOUNT, self.prefix, PREFIX + 1, b"", 0, b"1", strlen(b"1"), sizeof(NativeSub))
        if s == NULL:
            return False
        s.internal = 1
        s.flags = SUB_RESPONSES
        s.qw = came
        store32(&self.newest, came)
        native_sub(s).fn = take
        native_sub(s).ctx = <void *> self
        if self.insert(s) != SL_OK:
            free(native_sub(s))
            return False
        store_ptr_release(<void **> &self.responder, s)
        return True

    cdef int insert(self, Subscription *s) noexcept nogil:
        return self.sublist.insert(s)

    cdef int remove(self, Subscription *s) noexcept nogil:
        return self.sublist.remove(s)

    cdef void remove_batch(self, Subscription **subs, size_t n) noexcept nogil:
        self.sublist.remove_batch(subs, n)

    cdef void update_remote_qsub(self, Subscription *s, uint32_t qw) noexcept nogil:
        self.sublist.update_remote_qsub(s, qw)

    cdef void add_sink(self, InterestSink *sink) noexcept nogil:
        self.sublist.add_sink(sink)

    cdef void remove_sink(self, InterestSink *sink) noexcept nogil:
        self.sublist.remove_sink(sink)

    cdef Notification *register_notification(
        self, const char *subject, size_t n, const char *queue, size_t qn,
        void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx
    ) noexcept nogil:
        return notifications.register_notification(
            self.sublist, &self.notifications, subject, n, queue, qn, fn, ctx)

    cdef void clear_notification(self, Notification *note) noexcept nogil:
        notifications.clear_notification(self.sublist, &self.notifications, note)

    cdef size_t expect_response(
        self, MessageHandler take, Account requester, ServiceExport *se, const char *to, size_t n, bint share,
        uint64_t cid, bint tracked, const char *header, size_t hn, uint64_t random, int64_t now, char *out, bint *arm
    ) noexcept nogil:
        cdef Expected *e
        cdef Expected *back
        cdef Expected *oldest
        cdef Expected *lost = NULL
        cdef bint left, taken
        cdef size_t size = PREFIX + SUFFIX
        # An export of another account: a response that asks for a response itself. Only the requester's interest ends
        # the wait for it, as in nats-server, or MAX_STRAYS.
        cdef bint own = se.account == <void *> self
        cdef Queue *queue = &se.queue if own else &self.strays
        arm[0] = False
        if not self.has_responder(take, random ^ <uint64_t> now):
            return 0
        memcpy(out, self.prefix, PREFIX)
        put_random(out + PREFIX, random)
        if tracked and size + self.tracked.n <= REPLY_ROOM:
            memcpy(out + size, self.tracked.p, self.tracked.n)
            size += self.tracked.n
        e = expected_new(out, size, to, n, header, hn)
        back = expected_new(to, n, out, size, NULL, 0)
        if e == NULL or back == NULL:
            free(e)
            free(back)
            return 0
        # Add the requester's entry first: when `e` expires or is answered, that entry is removed with it.
        back.account = <void *> self
        if not requester.await_response(back):
            free(e)
            return 0
        e.account = <void *> requester
        e.back = back
        e.ts = now
        e.requester = cid
        e.rt = se.response_type
        e.share = share
        e.tracked = tracked
        pthread_mutex_lock(&self.lock)
        taken = replymap_find(&self.responses, out, size) != NULL
        # A closed export may be about to be freed: the thread that closed it relies on no new entry.
        if taken or (own and se.closed) or not replymap_add(&self.responses, e):
            pthread_mutex_unlock(&self.lock)
            requester.forget(back)
            free(e)
            if not taken:
                return 0
            # Random digits collide now and then when there are many entries: try others.
            return self.expect_response(
                take, requester, se, to, n, share, cid, tracked, header, hn, random + hash_seed_a, now, out, arm)
        e.se = export_hold(se)
        while queue.n >= <uint32_t> (MAX_EXPECTED if own else MAX_STRAYS) or queue.bytes > MAX_BYTES:
            oldest = queue.oldest
            queue_drop(oldest)
            replymap_remove(&self.responses, oldest)
            oldest.newer = lost
            lost = oldest
        queue_push(queue, e)
        if own:
            arm[0] = not se.armed
            se.armed = 1
        store64(&self.nresponses, self.responses.n)
        # `back` is alive while we hold the lock: before it is EXPECTED, only a thread that removes `e` frees it.
        left = exchange8(&back.stage, EXPECTED) == LEFT
        pthread_mutex_unlock(&self.lock)
        if left:
            oldest = self.take_response(out, size)
            if oldest != NULL:
                export_release(oldest.se)
                free(oldest)
        while lost != NULL:
            oldest = lost
            lost = lost.newer
            discard(oldest)
        return size

    cdef bint await_response(self, Expected *back) noexcept nogil:
        cdef bint added
        pthread_mutex_lock(&self.lock)
        added = waiting_add(&self.reverse, back)
        store64(&self.nreverse, self.nreverse + added)
        pthread_mutex_unlock(&self.lock)
        if not added:
            free(back)
        return added

    cdef Expected *take_response(self, const char *subject, size_t n) noexcept nogil:
        cdef Expected *e = self.abandon(subject, n)
        if e != NULL:
            (<Account> e.account).forget(e.back)
        return e

    cdef Expected *find_response(self, const char *subject, size_t n) noexcept nogil:
        cdef Expected *e
        cdef Expected *found = NULL
        cdef bint last
        if load64(&self.nresponses) == 0:
            return NULL
        pthread_mutex_lock(&self.lock)
        e = replymap_find(&self.responses, subject, n)
        last = e != NULL and e.rt == SINGLETON
        if e != NULL and not last:
            found = expected_new(subject, n, expected_other(e), e.other_n, NULL, 0)
            if found != NULL:
                found.se = export_hold(e.se)
                found.account = e.account
                found.rt = e.rt
                found.share = e.share
        pthread_mutex_unlock(&self.lock)
        return self.take_response(subject, n) if last else found

    cdef void renew_response(self, const char *subject, size_t n, int64_t now) noexcept nogil:
        cdef Expected *e
        cdef Queue *q
        pthread_mutex_lock(&self.lock)
        e = replymap_find(&self.responses, subject, n)
        if e != NULL:
            e.ts = now
            q = e.queue
            if q != NULL:
                queue_drop(e)
                queue_push(q, e)
        pthread_mutex_unlock(&self.lock)

    cdef void forget(self, Expected *back) noexcept nogil:
        cdef bint ours
        pthread_mutex_lock(&self.lock)
        ours = back.linked
        if ours:
            self.unlink_waiting(back)
        pthread_mutex_unlock(&self.lock)
        if ours or exchange8(&back.stage, DONE) == DONE:
            free(back)

    cdef void unlink_waiting(self, Expected *back) noexcept nogil:
        """Remove an entry from `reverse`. The lock is held."""
        waiting_remove(&self.reverse, back)
        store64(&self.nreverse, self.nreverse - 1)

    cdef Expected *check_for_reverse_entries(self, const char *reply, size_t n) noexcept nogil:
        cdef Expected *lost = NULL
        cdef Expected *taken = NULL
        cdef Expected *e
        cdef Expected *following
        cdef uint32_t i
        if load64(&self.nreverse) == 0:
            return NULL
        pthread_mutex_lock(&self.lock)
        if n and not subject_has_wildcard(reply, n):
            e = replymap_find(&self.reverse, reply, n)
            if e != NULL and not self.sublist.has_interest(reply, n):
                lost = leave(e, lost)
        elif self.reverse.n:
            for i in range(self.reverse.mask + 1):
                e = self.reverse.slots[i]
                while e != NULL:
                    if is_left(self.sublist, expected_key(e), e.key_n) if n == 0 else (
                            match_literal(expected_key(e), e.key_n, reply, n)
                            and not self.sublist.has_interest(expected_key(e), e.key_n)):
                        lost = leave(e, lost)
                    e = e.next
        e = lost   # only now: removing entries may resize the table
        while e != NULL:
            self.unlink_waiting(e)
            e = e.back
        pthread_mutex_unlock(&self.lock)
        while lost != NULL:
            following = lost.back
            e = (<Account> lost.account).abandon(expected_other(lost), lost.other_n)
            if e != NULL:
                e.newer = taken
                taken = e
            # A thread that has taken out the other entry before us calls forget() for this one, or already has.
            if e != NULL or exchange8(&lost.stage, DONE) == DONE:
                free(lost)
            lost = following
        return taken

    cdef Expected *abandon(self, const char *subject, size_t n) noexcept nogil:
        """Remove an entry of `responses`; the entry of its requester is not looked at."""
        cdef Expected *e
        pthread_mutex_lock(&self.lock)
        e = replymap_find(&self.responses, subject, n)
        if e != NULL:
            unlink(self, e)
        pthread_mutex_unlock(&self.lock)
        return e


cdef bint is_left(Sublist sl, const char *subject, size_t n) noexcept nogil:
    """Return whether `subject` has subscriptions, and all of them are closed."""
    cdef MatchResult *r = sl.match(subject, n)
    cdef uint32_t i, k
    cdef bint left
    if r == NULL:
        return False
    left = r.npsubs != 0 or r.nqgroups != 0
    for i in range(r.npsubs):
        left = left and load8(&r.psubs[i].closed)
    for i in range(r.nqgroups):
        for k in range(r.qgroups[i].n):
            left = left and load8(&r.qgroups[i].subs[k].closed)
    free(r)
    return left


cdef Expected *leave(Expected *e, Expected *lost) noexcept nogil:
    """Put the entries for a reply subject without subscribers before `lost`. Entries that are not EXPECTED yet are left
    to the thread that makes them."""
    while e != NULL:
        if exchange8(&e.stage, LEFT) == EXPECTED:
            e.back = lost
            lost = e
        e = e.newer
    return lost


cdef void unlink(Account a, Expected *e) noexcept nogil:
    """Remove an entry from `responses`. The lock is held."""
    queue_drop(e)
    replymap_remove(&a.responses, e)
    store64(&a.nresponses, a.responses.n)


cdef void discard(Expected *e) noexcept nogil:
    """Free an entry that is out of its table, and its requester's entry."""
    (<Account> e.account).forget(e.back)
    export_release(e.se)
    free(e)


# -- imports of streams ------------------------------------------------------------------------------------------


cdef StreamImport *same_stream(Account owner, Account exporter, bytes text, uint32_t source_n, uint32_t to_n,
                               bint use_published, bint allow_trace) noexcept:
    """Return the present import that equals this one, with a reference; NULL: none."""
    cdef StreamImport *im
    cdef uint32_t i
    if owner.streams == NULL:
        return NULL
    for i in range(owner.streams.n):
        im = owner.streams.imports[i]
        if (
            im.exporter == <void *> exporter and im.source_n == source_n and im.to_n == to_n
            and im.source_n + im.to_n + im.dest_n == <size_t> PyBytes_GET_SIZE(text)
            and im.use_published == use_published and im.allow_trace == allow_trace
            and memcmp(im.data, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)) == 0
        ):
            pthread_mutex_lock(&owner.lock)
            im.refs += 1
            pthread_mutex_unlock(&owner.lock)
            return im
    return NULL


cdef StreamImport *new_stream(Account owner, tuple row) except NULL:
    cdef Account exporter
    cdef bytes source, to, text
    cdef SubjectTransform transform, back
    cdef bint use_published, allow_trace
    cdef StreamImport *im
    exporter, source, to, transform, use_published, allow_trace = row
    text = source + to + (transform.dest if transform is not None else b"")
    im = same_stream(owner, exporter, text, len(source), len(to), use_published, allow_trace)
    if im != NULL:
        return im
    im = <StreamImport *> malloc(sizeof(StreamImport) + len(text))
    if im == NULL:
        raise MemoryError
    memset(im, 0, sizeof(StreamImport))
    im.refs = 1
    im.owner = <void *> owner
    im.exporter = <void *> exporter
    im.use_published = use_published
    im.allow_trace = allow_trace
    im.source_n = len(source)
    im.to_n = len(to)
    im.dest_n = len(text) - im.source_n - im.to_n
    memcpy(im.data, PyBytes_AS_STRING(text), len(text))
    if transform is not None:
        back = transform.reverse()
        im.tr = transform_copy(transform.compiled)
        im.back = transform_copy(back.compiled) if back is not None else NULL
        if im.tr == NULL or (back is not None and im.back == NULL):
            free(im.tr)
            free(im.back)
            free(im)
            raise MemoryError
    return im


cdef StreamImports *new_streams(Account owner, list rows) except NULL:
    cdef StreamImports *table = <StreamImports *> malloc(sizeof(StreamImports) + len(rows) * sizeof(void *))
    if table == NULL:
        raise MemoryError
    table.n = 0
    try:
        for row in rows:
            table.imports[table.n] = new_stream(owner, tuple(row))
            table.n += 1
    except BaseException:
        drop_streams(table)
        raise
    return table


cdef void drop_streams(StreamImports *table) noexcept nogil:
    cdef uint32_t i
    if table == NULL:
        return
    for i in range(table.n):
        stream_import_release(table.imports[i])
    qs_retire(table)


cdef bint stream_import_stays(Account importer, const StreamImport *im) noexcept nogil:
    cdef uint32_t i
    cdef bint found = False
    pthread_mutex_lock(&importer.lock)
    if importer.streams != NULL:
        for i in range(importer.streams.n):
            found = found or importer.streams.imports[i] == im
    pthread_mutex_unlock(&importer.lock)
    return found


cdef void stream_import_release(StreamImport *im) noexcept nogil:
    if drop_reference(<Account> im.owner, im):
        if im.tr != NULL:
            qs_retire(im.tr)
        if im.back != NULL:
            qs_retire(im.back)
        qs_retire(im)


cdef bint drop_reference(Account owner, StreamImport *im) noexcept nogil:
    """Drop a reference; return whether it was the last."""
    cdef bint last
    pthread_mutex_lock(&owner.lock)
    im.refs -= 1
    last = im.refs == 0
    pthread_mutex_unlock(&owner.lock)
    return last
