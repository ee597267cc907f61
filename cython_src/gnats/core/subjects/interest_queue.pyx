"""Changes of interest that wait for a link; see interest_queue.pxd."""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.digest cimport MOST_WEIGHT, digest_begin, digest_end, digest_word
from gnats.core.subjects.subject cimport hash_bytes, hash_seed_a, mul_mix
from gnats.core.subjects.sublist cimport InterestSink, Sublist, sub_queue, sub_subject
from gnats.core.subjects.trie cimport Interest, Node, Subscription
from gnats.includes.atomics cimport add64, load64, store8_release
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pthread_rwlock_rdlock,
    pthread_rwlock_unlock,
)

cdef enum:
    FIRST_SLOTS = 16


cdef void interest_queue_init(
    InterestQueue *q, uint8_t wanted, size_t limit, void (*wake)(void *link) noexcept nogil, void *link
) noexcept nogil:
    memset(q, 0, sizeof(InterestQueue))
    pthread_mutex_init(&q.lock, NULL)
    q.wanted = wanted
    q.limit = limit
    q.note = note_change
    q.wake = wake
    q.link = link


cdef void interest_queue_free(InterestQueue *q) noexcept nogil:
    drop_all(q)
    pthread_mutex_destroy(&q.lock)


cdef void interest_queue_follow(
    InterestQueue *q, FollowedAccount *sink, Sublist sl, void *account, const Slice *name
) noexcept nogil:
    memset(sink, 0, sizeof(FollowedAccount))
    sink.sink.changed = q.note
    sink.queue = q
    sink.account = account
    if name != NULL:
        sink.name = name[0]
    sl.join_sink(&sink.sink)


cdef InterestChange *interest_queue_walk(
    FollowedAccount *sink, Sublist sl, uint32_t most, bint *done, bint *incomplete
) noexcept nogil:
    cdef InterestQueue *q = sink.queue
    cdef InterestChange *taken = NULL
    cdef InterestChange **end = &taken
    cdef InterestChange *slice = NULL
    pthread_rwlock_rdlock(&sl.lock)
    sink.slice = &slice
    sink.slice_sum = 0
    sink.slice_lost = 0
    done[0] = sl.walk_sink(&sink.sink, most)
    sink.slice[0] = NULL
    sink.slice = NULL
    # Before another thread changes this account: it may have changed the same subject when the walk had not come to
    # that, or had come to a node of it that is gone. Those changes precede the slice, and none of them is found later.
    pthread_mutex_lock(&q.lock)
    q.sum += sink.slice_sum
    sink.sum += sink.slice_sum
    if sink.slice_lost:
        drop_all(q)
        q.incomplete = 1
    end = take_some(q, end, <uint32_t> -1, incomplete)
    pthread_mutex_unlock(&q.lock)
    pthread_rwlock_unlock(&sl.lock)
    end[0] = slice
    return taken


cdef bint interest_queue_leave(FollowedAccount *sink, Sublist sl) noexcept nogil:
    cdef InterestQueue *q = sink.queue
    cdef InterestChange *change
    cdef InterestChange *following
    sl.remove_sink(&sink.sink)
    pthread_mutex_lock(&q.lock)
    q.sum -= sink.sum
    change = q.first
    while change != NULL:
        following = change.later
        if change.account == sink.account:
            take_out(q, change)
            free(change)
        change = following
    pthread_mutex_unlock(&q.lock)
    return sink.sum != 0


cdef void interest_queue_keep(InterestQueue *q, bint keep) noexcept nogil:
    pthread_mutex_lock(&q.lock)
    q.keeps = keep
    pthread_mutex_unlock(&q.lock)


cdef InterestChange *interest_queue_take(InterestQueue *q, uint32_t most, bint *incomplete) noexcept nogil:
    cdef InterestChange *taken = NULL
    pthread_mutex_lock(&q.lock)
    take_some(q, &taken, most, incomplete)
    pthread_mutex_unlock(&q.lock)
    return taken


cdef bint interest_queue_sum(InterestQueue *q, uint64_t *sum) noexcept nogil:
    cdef bint taken
    pthread_mutex_lock(&q.lock)
    sum[0] = q.sum
    taken = q.first == NULL and not q.incomplete
    pthread_mutex_unlock(&q.lock)
    return taken


cdef void note_change(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before, const Interest *now
) noexcept nogil:
    interest_queue_note(<FollowedAccount *> sink, NULL, s, before, now)


cdef void interest_queue_note(
    FollowedAccount *followed, const Slice *origin, const Subscription *s, const Interest *before, const Interest *now
) noexcept nogil:
    cdef Interest old = wanted_of(followed.queue, s, before), new = wanted_of(followed.queue, s, now)
    if not same_interest(&old, &new):
        put(followed, origin, s, &old, &new, 0)


cdef void interest_queue_add(
    FollowedAccount *followed, const Slice *origin, const Subscription *s, uint32_t n
) noexcept nogil:
    cdef Interest none, more
    memset(&none, 0, sizeof(none))
    more = none
    more.local = n
    more = wanted_of(followed.queue, s, &more)
    put(followed, origin, s, &none, &more, s.queue_len != 0)


cdef void put(
    FollowedAccount *followed, const Slice *origin, const Subscription *s, const Interest *before,
    const Interest *now, bint add
) noexcept nogil:
    """Put a change into the queue, or into the change of the same subject that waits there."""
    cdef InterestQueue *q = followed.queue
    cdef bint idle
    if followed.slice != NULL and origin == NULL:
        put_into_slice(followed, s, before, now)
        return
    # Leaf nodes of one origin are one change, which has to be found.
    pthread_mutex_lock(&q.lock)
    idle = q.first == NULL and not q.incomplete
    # The changes of an incomplete queue are not needed: a link that begins anew gets all interest.
    if not q.incomplete and not put_change(q, followed, origin, s, before, now, add):
        drop_all(q)
        q.incomplete = 1
    idle = idle and (q.first != NULL or q.incomplete)
    store8_release(&q.waiting, q.first != NULL or q.incomplete)
    pthread_mutex_unlock(&q.lock)
    if idle:
        q.wake(q.link)


cdef inline uint32_t wanted_number(
    const InterestQueue *q, uint8_t which, const Subscription *s, uint32_t n
) noexcept nogil:
    if not q.wanted & which:
        return 0
    return n if s.queue_len or q.wanted & WANT_NUMBERS else n > 0


cdef inline Interest wanted_of(const InterestQueue *q, const Subscription *s, const Interest *interest) noexcept nogil:
    """Return an interest as the link wants to hear of it."""
    cdef Interest wanted
    wanted.local = wanted_number(q, WANT_LOCAL, s, interest.local)
    wanted.remote = wanted_number(q, WANT_REMOTE, s, interest.remote)
    wanted.services = wanted_number(q, WANT_SERVICES, s, interest.services)
    return wanted


cdef inline bint same_interest(const Interest *a, const Interest *b) noexcept nogil:
    return a.local == b.local and a.remote == b.remote and a.services == b.services


cdef inline size_t change_size(size_t text) noexcept nogil:
    return sizeof(InterestChange) + text


cdef InterestChange *change_new(
    void *account, const Slice *origin, const Subscription *s, const Interest *before, const Interest *now
) noexcept nogil:
    """NULL when out of memory."""
    cdef size_t text = <size_t> s.subject_len + s.queue_len
    cdef InterestChange *change = <InterestChange *> malloc(change_size(text + origin.n))
    if change != NULL:
        change.account = account
        change.subject_len = s.subject_len
        change.queue_len = s.queue_len
        change.origin_len = <uint32_t> origin.n
        change.before = before[0]
        change.now = now[0]
        memcpy(change.data, sub_subject(s), text)   # the group follows the subject there, too
        memcpy(change.data + text, origin.p, origin.n)
    return change


cdef inline Slice no_origin(const Subscription *s) noexcept nogil:
    cdef Slice nobody
    nobody.p = <char *> sub_subject(s)
    nobody.n = 0
    return nobody


cdef void put_into_slice(
    FollowedAccount *followed, const Subscription *s, const Interest *before, const Interest *now
) noexcept nogil:
    """The sublist is locked, and it is the thread that walks."""
    cdef Slice nobody = no_origin(s)
    cdef InterestChange *change = change_new(followed.account, &nobody, s, before, now)
    if change == NULL:
        followed.slice_lost = 1
        return
    followed.slice[0] = change
    followed.slice = &change.later
    if followed.queue.digests:
        followed.slice_sum += digest_of_change(followed, &nobody, s, before.local, now.local)


cdef uint64_t digest_of_change(
    const FollowedAccount *followed, const Slice *origin, const Subscription *s, uint32_t before, uint32_t now
) noexcept nogil:
    """Return the difference that a change of local interest makes to the sums."""
    cdef uint64_t digest = digest_begin(c'L' if origin.n else c'R')
    cdef Slice word
    if origin.n:
        digest = digest_word(digest, origin)
    if followed.name.p != NULL:
        digest = digest_word(digest, &followed.name)
    word.p = <char *> sub_subject(s)
    word.n = s.subject_len
    digest = digest_word(digest, &word)
    if s.queue_len:
        word.p = <char *> sub_queue(s)
        word.n = s.queue_len
        digest = digest_word(digest, &word)
    return digest_end(digest) * (
        <uint64_t> min(now, <uint32_t> MOST_WEIGHT) - <uint64_t> min(before, <uint32_t> MOST_WEIGHT))


# ---- under the queue's lock ----

cdef InterestChange **take_some(
    InterestQueue *q, InterestChange **end, uint32_t most, bint *incomplete
) noexcept nogil:
    """interest_queue_take(): put the chain at end[0], and return where it goes on."""
    incomplete[0] = q.incomplete
    q.incomplete = 0
    while q.first != NULL and most:
        end[0] = q.first
        take_out(q, q.first)
        end = &end[0].later
        most -= 1
    end[0] = NULL
    store8_release(&q.waiting, q.first != NULL)
    return end


cdef InterestChange *find_change(
    InterestQueue *q, void *account, const Slice *origin, const Subscription *s, uint32_t hash
) noexcept nogil:
    cdef InterestChange *change = q.table.slots[hash & q.table.mask] if q.table.n else NULL
    while change != NULL:
        if (
            change.hash == hash and change.account == account
            and change.subject_len == s.subject_len and change.queue_len == s.queue_len
            and change.origin_len == origin.n
            and memcmp(change_subject(change), sub_subject(s), s.subject_len) == 0
            and memcmp(change_queue(change), sub_queue(s), s.queue_len) == 0
            and memcmp(change_origin(change).p, origin.p, origin.n) == 0
        ):
            return change
        change = change.next
    return NULL


cdef void count_change(
    InterestQueue *q, FollowedAccount *followed, const Slice *origin, const Subscription *s, uint32_t before,
    uint32_t now
) noexcept nogil:
    """Note the difference that a change makes to the sums."""
    cdef uint64_t digest = digest_of_change(followed, origin, s, before, now)
    q.sum += digest
    followed.sum += digest


cdef bint put_change(
    InterestQueue *q, FollowedAccount *followed, const Slice *origin, const Subscription *s, const Interest *before,
    const Interest *now, bint add
) noexcept nogil:
    """Note the present interest in the subject and group of s; with `add`, how much more it is. False: no room."""
    cdef size_t text = <size_t> s.subject_len + s.queue_len
    cdef void *account = followed.account
    cdef uint32_t hash = <uint32_t> mul_mix(
        <uint64_t> account ^ hash_seed_a, (<uint64_t> s.queue_len << 32) ^ hash_bytes(sub_subject(s), text))
    cdef InterestChange *change
    cdef uint32_t known
    cdef Slice nobody
    if origin == NULL:
        nobody = no_origin(s)
        origin = &nobody
    else:
        hash ^= <uint32_t> hash_bytes(origin.p, origin.n)
    change = find_change(q, account, origin, s, hash)
    if change != NULL:
        known = change.now.local
        if add:
            change.now.local += now.local
        else:
            change.now = now[0]
        if q.digests:
            count_change(q, followed, origin, s, known, change.now.local)
        if not q.keeps and same_interest(&change.before, &change.now):
            take_out(q, change)
            free(change)
        return True
    if q.bytes + change_size(text + origin.n) > q.limit:
        return False
    change = change_new(account, origin, s, before, now)
    if change == NULL:
        return False
    change.hash = hash
    if not chains_add(as_chains(&q.table), as_chained(change), FIRST_SLOTS):
        free(change)
        return False
    change.later = NULL
    change.earlier = q.last
    if q.last != NULL:
        q.last.later = change
    else:
        q.first = change
    q.last = change
    q.bytes += change_size(text + origin.n)
    if q.digests:
        count_change(q, followed, origin, s, before.local, now.local)
    return True


cdef void take_out(InterestQueue *q, InterestChange *change) noexcept nogil:
    if change.earlier != NULL:
        change.earlier.later = change.later
    else:
        q.first = change.later
    if change.later != NULL:
        change.later.earlier = change.earlier
    else:
        q.last = change.earlier
    q.bytes -= change_size(<size_t> change.subject_len + change.queue_len + change.origin_len)
    chains_remove(as_chains(&q.table), as_chained(change))
    if q.table.n == 0:
        chains_clear(as_chains(&q.table))


cdef void drop_all(InterestQueue *q) noexcept nogil:
    cdef InterestChange *change
    while q.first != NULL:
        change = q.first
        q.first = change.later
        free(change)
    q.last = NULL
    q.bytes = 0
    chains_clear(as_chains(&q.table))


# ---- for tests ----

@cython.final
@cython.no_gc   # it has to remove its sinks from the sublists while it has these
cdef class QueueProbe:
    """A queue, and sinks of it in sublists; a sublist's number stands for its account."""
    cdef InterestQueue queue
    cdef FollowedAccount *sinks   # by number
    cdef uint32_t most
    cdef uint64_t woken
    cdef list sublists

    def __cinit__(self, list sublists not None, uint8_t wanted, size_t limit=<size_t> -1):
        interest_queue_init(&self.queue, wanted, limit, count_wake, &self.woken)
        self.sublists = sublists
        self.most = len(sublists)
        self.sinks = <FollowedAccount *> calloc(self.most + 1, sizeof(FollowedAccount))
        if self.sinks == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef uint32_t i
        if self.sinks != NULL:
            for i in range(self.most):
                self.leave(i)
        interest_queue_free(&self.queue)
        free(self.sinks)

    def follow(self, uint32_t number) -> None:
        """Begin to follow the account of a sublist."""
        cdef Sublist sl = self.sublists[number]
        with nogil:
            interest_queue_follow(&self.queue, &self.sinks[number], sl, <void *> <size_t> number, NULL)

    def leave(self, uint32_t number) -> None:
        """Undo follow()."""
        cdef Sublist sl = self.sublists[number]
        if self.sinks[number].queue != NULL:
            with nogil:
                interest_queue_leave(&self.sinks[number], sl)
            self.sinks[number].queue = NULL

    def take(self, uint32_t most=<uint32_t> -1) -> tuple:
        """Return whether the queue was incomplete, and changes: (number, subject, queue group, before, now)."""
        cdef bint incomplete
        cdef InterestChange *change
        with nogil:
            change = interest_queue_take(&self.queue, most, &incomplete)
        return bool(incomplete), self.listed(change)

    def walk(self, uint32_t number, uint32_t most=<uint32_t> -1) -> tuple:
        """Walk through about `most` nodes of a sublist. Return whether that was all of them, and as take()."""
        cdef Sublist sl = self.sublists[number]
        cdef bint done, incomplete
        cdef InterestChange *change
        with nogil:
            change = interest_queue_walk(&self.sinks[number], sl, most, &done, &incomplete)
        return bool(done), bool(incomplete), self.listed(change)

    cdef list listed(self, InterestChange *change):
        """Free a chain of changes, and return what is in it."""
        cdef InterestChange *following
        cdef list found = []
        while change != NULL:
            following = change.later
            found.append((
                <size_t> change.account, change_subject(change)[:change.subject_len],
                change_queue(change)[:change.queue_len],
                (change.before.local, change.before.remote, change.before.services),
                (change.now.local, change.now.remote, change.now.services)))
            free(change)
            change = following
        return found

    @property
    def wakes(self) -> int:
        """How often the queue has woken its link."""
        return load64(&self.woken)

    @property
    def bytes(self) -> int:
        """Bytes of the changes that wait."""
        cdef size_t n
        pthread_mutex_lock(&self.queue.lock)
        n = self.queue.bytes
        pthread_mutex_unlock(&self.queue.lock)
        return n


cdef void count_wake(void *woken) noexcept nogil:
    add64(<uint64_t *> woken, 1)
