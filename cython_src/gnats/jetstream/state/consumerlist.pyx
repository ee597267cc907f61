"""The consumers of a stream, found by their filters; see consumerlist.pxd."""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport strlen

from gnats.core.runtime.kinds cimport JETSTREAM
from gnats.core.runtime.quiesce cimport qs_retire
from gnats.core.subjects.sublist cimport SL_NO_MEMORY, SUB_FURTHER, MatchResult, Sublist, Subscription, sub_new
from gnats.includes.atomics cimport load_ptr_acquire, store_ptr_release, unlikely
from gnats.includes.pthread cimport pthread_mutex_lock, pthread_mutex_unlock
from gnats.jetstream.engine.barrier cimport JsPoller, StreamBase, run_when_visible
from gnats.jetstream.engine.consumerbase cimport ConsumerBase, consumer_count_off, consumer_kick, consumer_stored
from gnats.store.index.filter cimport Filter, filter_match
from gnats.store.store cimport MsgStore


# A message that is counted.
cdef struct Stored:
    JsPoller *jp
    void *stream             # borrowed StreamBase
    uint64_t seq


# A message that is counted off.
cdef struct Removed:
    uint64_t seq
    bint pending             # a consumer may have it pending


cdef class ConsumerList:
    """The consumers of one stream."""

    def __cinit__(self, MsgStore store not None):
        self.store = store
        self.members = {}

    def __dealloc__(self):
        free(self.root)

    # -- changes -----------------------------------------------------------------------------------------------------

    cdef int add(self, ConsumerBase o) except -1:
        cdef const ConsumerRoot *old = self.root
        cdef ConsumerRoot *made
        if old != NULL and old.index != NULL:
            self.add_to_index([o])
        elif old != NULL and old.n == FEW_CONSUMERS:
            made = <ConsumerRoot *> calloc(1, sizeof(ConsumerRoot))
            if made == NULL:
                raise MemoryError
            try:
                if self.index is None:
                    self.index = Sublist()
                self.add_to_index([*self.members, o])
            except MemoryError:
                free(made)
                raise
            made.index = <void *> self.index
            self.publish(made)
        else:
            made = <ConsumerRoot *> calloc(1, sizeof(ConsumerRoot))
            if made == NULL:
                raise MemoryError
            if old != NULL:
                made[0] = old[0]
            made.few[made.n] = <void *> o
            made.n += 1
            self.publish(made)
        self.members[o] = None
        return 0

    cdef int remove(self, ConsumerBase o) except -1:
        cdef const ConsumerRoot *old = self.root
        cdef ConsumerRoot *made = NULL
        cdef uint32_t i
        if o not in self.members:
            return 0
        if o.listed == NULL and len(self.members) > 1:
            made = <ConsumerRoot *> calloc(1, sizeof(ConsumerRoot))
            if made == NULL:
                raise MemoryError
            for i in range(old.n):
                if old.few[i] != <void *> o:
                    made.few[made.n] = old.few[i]
                    made.n += 1
        del self.members[o]
        self.unlist(o)
        if made != NULL or not self.members:
            self.publish(made)
        return 0

    cdef int clear(self) except -1:
        # Allocate nothing: closing a stream must not end half-way.
        cdef ConsumerBase o
        if not self.members:
            return 0
        self.publish(NULL)
        for o in self.members:
            self.unlist(o)
        self.members.clear()
        return 0

    cdef void unlist(self, ConsumerBase o) noexcept:
        # Take a consumer out of the index, if it is there.
        cdef Subscription *listed = o.listed
        if listed == NULL:
            return
        o.listed = NULL
        pthread_mutex_lock(&self.store.lock)
        take_out(self.index, listed)
        pthread_mutex_unlock(&self.store.lock)
        retire_all(listed)

    cdef int refilter(self, ConsumerBase o, Filter *f) except -1:
        cdef Subscription *old = o.listed
        cdef Subscription *made = NULL
        cdef bint ok = True
        if old != NULL:
            made = subscriptions_of(o, f)
        pthread_mutex_lock(&self.store.lock)
        if old != NULL:
            # Add the new ones before removing the old, so that a thread that walks without the lock never misses `o`.
            ok = put_in(self.index, made)
            if ok:
                take_out(self.index, old)
        if ok:
            o.filter = f
        pthread_mutex_unlock(&self.store.lock)
        if not ok:
            free_all(made)
            raise MemoryError
        if old != NULL:
            o.listed = made
            retire_all(old)
        return 0

    cdef int publish(self, ConsumerRoot *made) except -1:
        # Under the lock: a thread that stores a message holds it, and sees the old root or the new one throughout.
        cdef ConsumerRoot *old = self.root
        pthread_mutex_lock(&self.store.lock)
        store_ptr_release(<void **> &self.root, made)
        pthread_mutex_unlock(&self.store.lock)
        if old != NULL:
            qs_retire(old)
        return 0

    cdef int add_to_index(self, list joining) except -1:
        """Add subscriptions of the consumers to the index; of none of them after MemoryError."""
        cdef ConsumerBase o
        cdef bint ok = True
        cdef list there = []
        try:
            for o in joining:
                o.listed = subscriptions_of(o, o.filter)
                there.append(o)
        except MemoryError:
            ok = False
        if ok:
            pthread_mutex_lock(&self.store.lock)
            for o in joining:
                ok = ok and put_in(self.index, o.listed)
            if not ok:
                for o in joining:
                    take_out(self.index, o.listed)
            pthread_mutex_unlock(&self.store.lock)
        if not ok:
            for o in there:
                retire_all(o.listed)
                o.listed = NULL
            raise MemoryError
        return 0

    # -- walks -------------------------------------------------------------------------------------------------------

    cdef void stored(
        self, JsPoller *jp, StreamBase stream, uint64_t seq, const char *subject, uint32_t n
    ) noexcept nogil:
        cdef const ConsumerRoot *all = self.root
        cdef Stored m
        cdef uint32_t i
        m.jp = jp
        m.stream = <void *> stream
        m.seq = seq
        if all.index != NULL:
            (<Sublist> all.index).visit(subject, n, count_stored, &m)
            return
        for i in range(all.n):
            if filter_match((<ConsumerBase> all.few[i]).filter, subject, n):
                count_one(&m, <ConsumerBase> all.few[i])

    cdef bint count_off(self, uint64_t seq, const char *subject, uint32_t n) noexcept nogil:
        cdef const ConsumerRoot *all = self.root
        cdef Removed m
        cdef uint32_t i
        m.seq = seq
        m.pending = False
        if all.index != NULL:
            (<Sublist> all.index).visit(subject, n, count_off_some, &m)
        else:
            for i in range(all.n):
                if consumer_count_off(<ConsumerBase> all.few[i], seq, subject, n):
                    m.pending = True
        return m.pending

    cdef bint has_interest(self, const char *subject, uint32_t n) noexcept nogil:
        cdef const ConsumerRoot *all = self.root
        cdef uint32_t i
        if all == NULL:
            return False
        if all.index != NULL:
            return (<Sublist> all.index).has_interest(subject, n)
        for i in range(all.n):
            if filter_match((<ConsumerBase> all.few[i]).filter, subject, n):
                return True
        return False

    cdef bint look_up(self, Concern concern, const char *subject, uint32_t n, Concerned *c) noexcept nogil:
        cdef const ConsumerRoot *all = <const ConsumerRoot *> load_ptr_acquire(<void **> &self.root)
        c.n = 0
        c.few = all
        c.found = NULL
        if all == NULL:
            return True
        if all.index == NULL:
            c.n = all.n
            return True
        c.few = NULL
        if concern == WITH_SUBJECT:
            c.found = (<Sublist> all.index).match(subject, n)
        elif concern == WITH_SUBJECTS:
            c.found = (<Sublist> all.index).reverse_match(subject, n)
        else:
            c.found = (<Sublist> all.index).all()
        if c.found == NULL:
            return False
        if concern == WITH_EVERYTHING:
            drop_further(c.found)
        c.n = c.found.npsubs
        return True


cdef void drop_further(MatchResult *r) noexcept nogil:
    cdef uint32_t i, n = 0
    for i in range(r.npsubs):
        if not r.psubs[i].flags & SUB_FURTHER:
            r.psubs[n] = r.psubs[i]
            n += 1
    r.npsubs = n


cdef void concerned_free(Concerned *c) noexcept nogil:
    free(c.found)
    c.found = NULL
    c.n = 0


cdef void count_stored(void *arg, Subscription **subs, uint32_t n) noexcept nogil:
    cdef Stored *m = <Stored *> arg
    cdef uint32_t i
    for i in range(n):
        count_one(m, <ConsumerBase> subs[i].client)


cdef void count_off_some(void *arg, Subscription **subs, uint32_t n) noexcept nogil:
    cdef Removed *m = <Removed *> arg
    cdef uint32_t i
    for i in range(n):
        if consumer_count_off(<ConsumerBase> subs[i].client, m.seq, NULL, 0):
            m.pending = True


cdef inline void count_one(const Stored *m, ConsumerBase o) noexcept nogil:
    if not consumer_stored(o, m.seq):
        return
    if unlikely(not run_when_visible(m.jp, <StreamBase> m.stream, o)):
        consumer_kick(o)


# -- subscriptions of one consumer, linked by `next` -------------------------------------------------------------------

cdef Subscription *subscriptions_of(ConsumerBase o, const Filter *f) except NULL:
    cdef Subscription *first = NULL
    cdef Subscription **link = &first
    cdef uint32_t i
    if f == NULL or f.all:
        first = sub_new(<void *> o, JETSTREAM, b">", strlen(b">"), NULL, 0, b"", 0)
    else:
        for i in range(f.n):
            link[0] = sub_new(<void *> o, JETSTREAM, f.subjects[i].at, f.subjects[i].n, NULL, 0, b"", 0)
            if link[0] == NULL:
                free_all(first)
                first = NULL
                break
            link[0].internal = 1
            link[0].flags = SUB_FURTHER if i else 0
            link = &link[0].next
    if first == NULL:
        raise MemoryError
    return first


cdef bint put_in(Sublist index, Subscription *s) noexcept nogil:
    """Insert all subscriptions; none, and False, when out of memory. Skips invalid subjects, which match nothing."""
    cdef Subscription *first = s
    while s != NULL:
        if index.insert(s) == SL_NO_MEMORY:
            take_out(index, first)
            return False
        s = s.next
    return True


cdef void take_out(Sublist index, Subscription *s) noexcept nogil:
    while s != NULL:
        index.remove(s)
        s = s.next


cdef void retire_all(Subscription *s) noexcept nogil:
    cdef Subscription *following
    while s != NULL:
        following = s.next
        qs_retire(s)
        s = following


cdef void free_all(Subscription *s) noexcept nogil:
    cdef Subscription *following
    while s != NULL:
        following = s.next
        free(s)
        s = following
