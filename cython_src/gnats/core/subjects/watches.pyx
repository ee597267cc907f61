"""Watches of first and last subscriptions; see watches.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.subjects.subject cimport hash_bytes
from gnats.core.subjects.sublist cimport InterestSink, Sublist, sub_queue, sub_subject
from gnats.core.subjects.trie cimport Subscription
from gnats.includes.atomics cimport add64, load64
from gnats.includes.pthread cimport pthread_rwlock_unlock, pthread_rwlock_wrlock

cdef enum:
    FIRST_SLOTS = 16


cdef inline uint32_t hash_of(const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil:
    return hash_bytes(subject, n) ^ (hash_bytes(queue, qn) * 31 if qn else 0)


cdef Watch *watch(
    Sublist sl, Watches *watches, const char *subject, size_t n, const char *queue, size_t qn,
    void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx
) noexcept nogil:
    cdef Watch *w = <Watch *> malloc(sizeof(Watch) + n + qn)
    if w == NULL:
        return NULL
    w.fn = fn
    w.ctx = ctx
    w.hash = hash_of(subject, n, queue, qn)
    w.subject_len = <uint32_t> n
    w.queue_len = <uint32_t> qn
    memcpy(w.data, subject, n)
    if qn:
        memcpy(w.data + n, queue, qn)
    pthread_rwlock_wrlock(&sl.lock)
    if not chains_add(as_chains(&watches.table), as_chained(w), FIRST_SLOTS):
        free(w)
        w = NULL
    else:
        w.interest = sl.count_of(subject, n, queue, qn) > 0
        if watches.table.n == 1:
            watches.sink.changed = notify
            sl.add_sink(&watches.sink)
    pthread_rwlock_unlock(&sl.lock)
    return w


cdef void unwatch(Sublist sl, Watches *watches, Watch *w) noexcept nogil:
    pthread_rwlock_wrlock(&sl.lock)
    chains_remove(as_chains(&watches.table), as_chained(w))
    free(w)
    if watches.table.n == 0:
        chains_clear(as_chains(&watches.table))
        sl.remove_sink(&watches.sink)
    pthread_rwlock_unlock(&sl.lock)


cdef void watches_free(Sublist sl, Watches *watches) noexcept nogil:
    if watches.table.n == 0:
        return
    pthread_rwlock_wrlock(&sl.lock)
    sl.remove_sink(&watches.sink)
    pthread_rwlock_unlock(&sl.lock)
    chains_clear(as_chains(&watches.table))


cdef void notify(InterestSink *sink, const Subscription *s, int delta, uint32_t count) noexcept nogil:
    """Call the watches of a subscription's subject and group when it is the first one, or was the last."""
    cdef WatchTable *t = &(<Watches *> sink).table
    cdef bint interest = count > 0
    cdef size_t n = s.subject_len, qn = s.queue_len
    cdef uint32_t hash
    cdef Watch *w
    if count > 1 or (count == 1 and delta < 0):
        return
    hash = hash_of(sub_subject(s), n, sub_queue(s), qn)
    w = t.slots[hash & t.mask]
    while w != NULL:
        if (
            w.hash == hash and w.subject_len == n and w.queue_len == qn
            and memcmp(w.data, sub_subject(s), n) == 0
            and (qn == 0 or memcmp(w.data + n, sub_queue(s), qn) == 0) and w.interest != interest
        ):
            w.interest = interest
            w.fn(w.ctx, interest)
        w = w.next


# -- for tests ---------------------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc
cdef class WatchList:
    """The watches on a sublist."""
    cdef Watches watches
    cdef Sublist sublist

    def __cinit__(self, Sublist sublist not None):
        self.sublist = sublist

    def watch(self, bytes subject not None, bytes queue not None=b"") -> InterestLog:
        return InterestLog(self, subject, queue)


@cython.final
@cython.no_gc
cdef class InterestLog:
    """Watches a subject in a queue group and counts the changes."""
    cdef Watch *entry
    cdef WatchList owner
    cdef uint64_t changed

    def __cinit__(self, WatchList owner not None, bytes subject not None, bytes queue not None):
        self.owner = owner
        self.entry = watch(
            owner.sublist, &owner.watches, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue), count_change, &self.changed)
        if self.entry == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.entry != NULL:
            unwatch(self.owner.sublist, &self.owner.watches, self.entry)

    @property
    def changes(self) -> int:
        return load64(&self.changed)

    @property
    def interest(self) -> bool:
        return bool(self.entry.interest)


cdef void count_change(void *changed, bint interest) noexcept nogil:
    add64(<uint64_t *> changed, 1)


cdef struct SinkOfProbe:
    InterestSink sink    # first: the sublist knows only this
    void *probe          # borrowed SinkProbe


@cython.final
@cython.no_gc
cdef class SinkProbe:
    """A sink; `changes` are (subject, queue group, delta, count)."""
    cdef SinkOfProbe sink
    cdef Sublist sublist
    cdef readonly list changes

    def __cinit__(self, Sublist sublist not None):
        self.sublist = sublist
        self.changes = []
        self.sink.sink.changed = record
        self.sink.probe = <void *> self
        pthread_rwlock_wrlock(&sublist.lock)
        sublist.add_sink(&self.sink.sink)
        pthread_rwlock_unlock(&sublist.lock)

    def close(self) -> None:
        pthread_rwlock_wrlock(&self.sublist.lock)
        self.sublist.remove_sink(&self.sink.sink)
        pthread_rwlock_unlock(&self.sublist.lock)


cdef void record(InterestSink *sink, const Subscription *s, int delta, uint32_t count) noexcept nogil:
    with gil:
        (<SinkProbe> (<SinkOfProbe *> sink).probe).changes.append((
            sub_subject(s)[:s.subject_len], sub_queue(s)[:s.queue_len], delta, count))
