"""Notifications of first and last subscriptions; see notifications.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.subjects.subject cimport hash_bytes
from gnats.core.subjects.sublist cimport InterestSink, Sublist, sub_queue, sub_subject
from gnats.core.subjects.trie cimport Interest, Node, Subscription, interest_total
from gnats.includes.atomics cimport add64, load64
from gnats.includes.pthread cimport pthread_rwlock_unlock, pthread_rwlock_wrlock

cdef enum:
    FIRST_SLOTS = 16


cdef inline uint32_t hash_of(const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil:
    return hash_bytes(subject, n) ^ (hash_bytes(queue, qn) * 31 if qn else 0)


cdef Notification *register_notification(
    Sublist sl, Notifications *notifications, const char *subject, size_t n, const char *queue, size_t qn,
    void (*fn)(void *ctx, bint interest) noexcept nogil, void *ctx
) noexcept nogil:
    cdef Notification *note = <Notification *> malloc(sizeof(Notification) + n + qn)
    if note == NULL:
        return NULL
    note.fn = fn
    note.ctx = ctx
    note.hash = hash_of(subject, n, queue, qn)
    note.subject_len = <uint32_t> n
    note.queue_len = <uint32_t> qn
    memcpy(note.data, subject, n)
    if qn:
        memcpy(note.data + n, queue, qn)
    pthread_rwlock_wrlock(&sl.lock)
    if not chains_add(as_chains(&notifications.table), as_chained(note), FIRST_SLOTS):
        free(note)
        note = NULL
    else:
        note.interest = sl.count_of(subject, n, queue, qn) > 0
        if notifications.table.n == 1:
            notifications.sink.changed = notify
            sl.link_sink(&notifications.sink)
    pthread_rwlock_unlock(&sl.lock)
    return note


cdef void clear_notification(Sublist sl, Notifications *notifications, Notification *note) noexcept nogil:
    pthread_rwlock_wrlock(&sl.lock)
    chains_remove(as_chains(&notifications.table), as_chained(note))
    free(note)
    if notifications.table.n == 0:
        chains_clear(as_chains(&notifications.table))
        sl.unlink_sink(&notifications.sink)
    pthread_rwlock_unlock(&sl.lock)


cdef void notifications_free(Sublist sl, Notifications *notifications) noexcept nogil:
    if notifications.table.n == 0:
        return
    sl.remove_sink(&notifications.sink)
    chains_clear(as_chains(&notifications.table))


cdef void notify(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before, const Interest *now
) noexcept nogil:
    """Call the notifications of a subscription's subject and group when it is the first one, or was the last."""
    cdef NotificationTable *t = &(<Notifications *> sink).table
    cdef bint interest = interest_total(now) > 0
    cdef size_t n = s.subject_len, qn = s.queue_len
    cdef uint32_t hash
    cdef Notification *note
    if interest == (interest_total(before) > 0):
        return
    hash = hash_of(sub_subject(s), n, sub_queue(s), qn)
    note = t.slots[hash & t.mask]
    while note != NULL:
        if (
            note.hash == hash and note.subject_len == n and note.queue_len == qn
            and memcmp(note.data, sub_subject(s), n) == 0
            and (qn == 0 or memcmp(note.data + n, sub_queue(s), qn) == 0) and note.interest != interest
        ):
            note.interest = interest
            note.fn(note.ctx, interest)
        note = note.next


# -- for tests ---------------------------------------------------------------------------------------------------------

@cython.final
@cython.no_gc
cdef class NotificationList:
    """The notifications on a sublist."""
    cdef Notifications notifications
    cdef Sublist sublist

    def __cinit__(self, Sublist sublist not None):
        self.sublist = sublist

    def register(self, bytes subject not None, bytes queue not None=b"") -> InterestLog:
        return InterestLog(self, subject, queue)


@cython.final
@cython.no_gc
cdef class InterestLog:
    """Notifications a subject in a queue group and counts the changes."""
    cdef Notification *entry
    cdef NotificationList owner
    cdef uint64_t changed

    def __cinit__(self, NotificationList owner not None, bytes subject not None, bytes queue not None):
        self.owner = owner
        self.entry = register_notification(
            owner.sublist, &owner.notifications, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
            PyBytes_AS_STRING(queue), PyBytes_GET_SIZE(queue), count_change, &self.changed)
        if self.entry == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.entry != NULL:
            clear_notification(self.owner.sublist, &self.owner.notifications, self.entry)

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
    """A sink; `changes` are (subject, queue group, interest before, interest now), each interest as (local, remote,
    services)."""
    cdef SinkOfProbe sink
    cdef Sublist sublist
    cdef readonly list changes

    def __cinit__(self, Sublist sublist not None):
        self.sublist = sublist
        self.changes = []
        self.sink.sink.changed = record
        self.sink.probe = <void *> self
        sublist.add_sink(&self.sink.sink)

    def close(self) -> None:
        self.sublist.remove_sink(&self.sink.sink)


cdef void record(
    InterestSink *sink, const Subscription *s, const Node *node, const Interest *before, const Interest *now
) noexcept nogil:
    with gil:
        (<SinkProbe> (<SinkOfProbe *> sink).probe).changes.append((
            sub_subject(s)[:s.subject_len], sub_queue(s)[:s.queue_len],
            (before.local, before.remote, before.services), (now.local, now.remote, now.services)))
