"""The data plane's half of an account; see account.pxd."""
import cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.kinds cimport ACCOUNT
from gnats.core.mappings cimport Mappings, mappings_compile
from gnats.core.message cimport MessageHandler, NativeSub, native_sub
from gnats.core.quiesce cimport qs_retire
from gnats.core.responses cimport (
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
from gnats.core.subject cimport hash_seed_a, hash_seed_b, match_literal, mul_mix, subject_has_wildcard
from gnats.core.sublist cimport SL_OK, SUB_RESPONSES, MatchResult, Sublist, Subscription, sub_new, sub_row
from gnats.core.transform cimport SubjectTransform, transform_copy
from gnats.includes.atomics cimport (
    exchange8,
    exchange64,
    load8,
    load64,
    load_ptr_acquire,
    store8,
    store64,
    store_ptr_release,
)
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    PREFIX = 11    # of `_R_.xxxxxx.`
    SUFFIX = 6

cdef const char *DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


cdef void put_random(char *out, uint64_t random) noexcept nogil:
    """Six digits that nobody outside can guess."""
    cdef int i
    random = mul_mix(random ^ hash_seed_a, hash_seed_b)
    for i in range(SUFFIX):
        out[i] = DIGITS[random % 62]
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
            self.sublist.remove(self.responder)
            free(native_sub(self.responder))
        replymap_free(&self.responses)
        waiting_free(&self.reverse)
        drop_streams(self.streams)
        free(self.mappings)
        free(self.trace_dest)
        pthread_mutex_destroy(&self.lock)

    def set_identity(self, bytes name not None, bytes server not None, bytes server_hash not None) -> None:
        """What requests to other accounts say about this one: its name and the server's, in JSON with quotes; the
        server's hash marks the subjects of responses that are measured. Before the account has clients."""
        cdef bytes tracked = b"." + server_hash + b".T" if server_hash else b""
        self.identity = name + server + tracked
        self.info_name.p = PyBytes_AS_STRING(self.identity)
        self.info_name.n = len(name)
        self.info_server.p = self.info_name.p + self.info_name.n
        self.info_server.n = len(server)
        self.tracked.p = self.info_server.p + self.info_server.n
        self.tracked.n = len(tracked)

    def set_mappings(self, list rows) -> None:
        """What messages published in this account from now on are mapped by: [(source, [(SubjectTransform, upto)])].

        The first source that matches counts; of its destinations the first whose `upto` is over a random number of
        0 to 99, and without such a one the message is lost. Raises MemoryError.
        """
        cdef Mappings *fresh = mappings_compile(rows) if rows else NULL
        cdef Mappings *old = <Mappings *> exchange64(<uint64_t *> &self.mappings, <uint64_t> fresh)
        if old != NULL:
            qs_retire(old)

    def set_stream_imports(self, list rows) -> None:
        """What subscriptions in this account hear of others: [(exporter, subject, to, transform, use published,
        allow trace)].

        Those of connected clients change when each is told (Client.renew_imports); an import that was there before
        stays what it is. Raises MemoryError.
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
        """Trace this percentage of the messages that carry a sampled traceparent, to a subject; b"" for none.
        Raises MemoryError."""
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
        """Keep another account, and have it keep this one: each may come to point into the other."""
        if other is not self and other not in self.peers:
            self.peers.append(other)
            other.peers.append(self)

    def detach(self) -> None:
        """Keep no other accounts any more, and be kept by none: nothing of the one points into the other."""
        for other in self.peers:
            (<Account> other).peers.remove(self)
        self.peers.clear()

    @property
    def exchanges(self) -> bool:
        """Whether somebody subscribes here, or it imports streams, or a response is expected or waited for: then others
        may point to it."""
        cdef bint busy
        cdef Py_ssize_t own
        pthread_mutex_lock(&self.lock)
        own = self.responder != NULL
        busy = self.streams != NULL or self.responses.n != 0 or self.reverse.n != 0
        pthread_mutex_unlock(&self.lock)
        return busy or self.sublist.count() > own

    def responder_subscription(self) -> tuple | None:
        """(subject, queue, sid, delivered, max) of the subscription to responses, once there is one."""
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
        """Responses that are expected of this account."""
        return load64(&self.nresponses)

    @property
    def pending_requests(self) -> int:
        """Responses that this account waits for."""
        return load64(&self.nreverse)

    # -- responses -----------------------------------------------------------------------------------------------

    cdef bint has_responder(self, MessageHandler take, uint64_t random) noexcept nogil:
        """Whether there is one, made now if need be; False when out of memory."""
        cdef bint made
        if load_ptr_acquire(<void **> &self.responder) != NULL:
            return True
        pthread_mutex_lock(&self.lock)
        made = self.responder != NULL or self.make_responder(take, random)
        pthread_mutex_unlock(&self.lock)
        return made

    cdef bint make_responder(self, MessageHandler take, uint64_t random) noexcept nogil:
        """Subscribe to all responses; the lock is held."""
        cdef Subscription *s
        memcpy(self.prefix, b"_R_.", 4)
        put_random(self.prefix + 4, random)
        self.prefix[PREFIX - 1] = c'.'
        self.prefix[PREFIX] = c'>'
        s = sub_new(NULL, ACCOUNT, self.prefix, PREFIX + 1, b"", 0, b"1", 1, sizeof(NativeSub))
        if s == NULL:
            return False
        s.internal = 1
        s.flags = SUB_RESPONSES
        native_sub(s).fn = take
        native_sub(s).ctx = <void *> self
        if self.sublist.insert(s) != SL_OK:
            free(native_sub(s))
            return False
        store_ptr_release(<void **> &self.responder, s)
        return True

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
        # The export of another account is that of a response which wants an answer itself: nothing ends its waiting
        # but the requester's interest, as in nats-server, or their number.
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
        # First the way back, since what expires or is answered takes it out.
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
        # A closed export may be about to be freed: whoever closed it counts on nothing being added.
        if taken or (own and se.closed) or not replymap_add(&self.responses, e):
            pthread_mutex_unlock(&self.lock)
            requester.forget(back)
            free(e)
            if not taken:
                return 0
            # One of so many is, now and then, when there are many: another will not be.
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
        # `back` is there while we hold the lock: only who takes `e` out frees it before it is EXPECTED.
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
        cdef Expected *e
        pthread_mutex_lock(&self.lock)
        e = replymap_find(&self.responses, subject, n)
        if e != NULL:
            unlink(self, e)
        pthread_mutex_unlock(&self.lock)
        if e != NULL:
            (<Account> e.account).forget(e.back)
        return e

    cdef Expected *find_response(self, const char *subject, size_t n) noexcept nogil:
        cdef Expected *e
        cdef Expected *found = NULL
        if load64(&self.nresponses) == 0:
            return NULL
        pthread_mutex_lock(&self.lock)
        e = replymap_find(&self.responses, subject, n)
        if e != NULL and e.rt != SINGLETON:
            found = expected_new(subject, n, expected_other(e), e.other_n, NULL, 0)
            if found != NULL:
                found.se = export_hold(e.se)
                found.account = e.account
                found.rt = e.rt
                found.share = e.share
        pthread_mutex_unlock(&self.lock)
        return self.take_response(subject, n) if e != NULL and found == NULL else found

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
        """Out of `reverse`; the lock is held."""
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
        e = lost   # not before: taking them out may move the entries
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
            # Who has taken it out before us still comes to forget(), or has been there.
            if e != NULL or exchange8(&lost.stage, DONE) == DONE:
                free(lost)
            lost = following
        return taken

    cdef Expected *abandon(self, const char *subject, size_t n) noexcept nogil:
        """Expect a response no more; the requester has forgotten it."""
        cdef Expected *e
        pthread_mutex_lock(&self.lock)
        e = replymap_find(&self.responses, subject, n)
        if e != NULL:
            unlink(self, e)
        pthread_mutex_unlock(&self.lock)
        return e


cdef bint is_left(Sublist sl, const char *subject, size_t n) noexcept nogil:
    """Has everybody who is subscribed to it been closed, and is there somebody?"""
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
    """Nobody listens to a reply subject: put what is expected there before `lost`. What is about to be expected is left
    to who makes it."""
    while e != NULL:
        if exchange8(&e.stage, LEFT) == EXPECTED:
            e.back = lost
            lost = e
        e = e.newer
    return lost


cdef void unlink(Account a, Expected *e) noexcept nogil:
    """Take an entry out of `responses`; the lock is held."""
    queue_drop(e)
    replymap_remove(&a.responses, e)
    store64(&a.nresponses, a.responses.n)


cdef void discard(Expected *e) noexcept nogil:
    """Free an entry that is out of its table, and what its requester has of it."""
    (<Account> e.account).forget(e.back)
    export_release(e.se)
    free(e)


# -- imports of streams ------------------------------------------------------------------------------------------


cdef StreamImport *same_stream(Account owner, Account exporter, bytes text, uint32_t source_n, uint32_t to_n,
                               bint use_published, bint allow_trace) noexcept:
    """The one of the imports so far that is the same, with another reference; NULL for none."""
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
    """Whether it was the last."""
    cdef bint last
    pthread_mutex_lock(&owner.lock)
    im.refs -= 1
    last = im.refs == 0
    pthread_mutex_unlock(&owner.lock)
    return last
