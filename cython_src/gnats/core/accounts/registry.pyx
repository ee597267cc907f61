"""Accounts by name; see registry.pxd."""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from gnats.core.accounts.account cimport Account
from gnats.core.runtime.quiesce cimport (
    QsParticipant,
    qs_offline,
    qs_online,
    qs_reclaim,
    qs_register,
    qs_retire,
    qs_unregister,
)
from gnats.core.subjects.subject cimport hash_bytes
from gnats.includes.atomics cimport load_ptr_acquire, store_ptr_release
from gnats.includes.pthread cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    FIRST_SLOTS = 16


cdef AccountTable *table_new(uint32_t slots) noexcept nogil:
    cdef AccountTable *t = <AccountTable *> calloc(1, sizeof(AccountTable) + slots * sizeof(AccountEntry *))
    if t != NULL:
        t.mask = slots - 1
    return t


cdef void table_free(AccountTable *t) noexcept nogil:
    """Free a table that no reader has seen, or that none can see any more."""
    cdef AccountEntry *e
    cdef uint32_t i
    if t == NULL:
        return
    for i in range(t.mask + 1):
        while t.slots[i] != NULL:
            e = t.slots[i]
            t.slots[i] = e.next
            free(e)
    free(t)


cdef void table_retire(AccountTable *t) noexcept nogil:
    cdef AccountEntry *e
    cdef uint32_t i
    for i in range(t.mask + 1):
        e = t.slots[i]
        while e != NULL:
            qs_retire(e)
            e = e.next
    qs_retire(t)


cdef bint table_add(AccountTable *t, const char *name, size_t n, void *account) noexcept nogil:
    """Add an entry; readers see it whole or not at all. False when out of memory."""
    cdef AccountEntry *e = <AccountEntry *> malloc(sizeof(AccountEntry) + n)
    cdef AccountEntry **slot
    if e == NULL:
        return False
    e.hash = hash_bytes(name, n)
    e.name_len = <uint32_t> n
    e.account = account
    memcpy(e.name, name, n)
    slot = &t.slots[e.hash & t.mask]
    e.next = slot[0]
    store_ptr_release(<void **> slot, e)
    return True


cdef AccountTable *table_doubled(const AccountTable *t) noexcept nogil:
    """Return a copy with twice as many buckets; NULL when out of memory."""
    cdef AccountTable *fresh = table_new(2 * (t.mask + 1))
    cdef const AccountEntry *e
    cdef uint32_t i
    if fresh == NULL:
        return NULL
    for i in range(t.mask + 1):
        e = t.slots[i]
        while e != NULL:
            if not table_add(fresh, e.name, e.name_len, e.account):
                table_free(fresh)
                return NULL
            e = e.next
    return fresh


@cython.no_gc_clear   # the table borrows the accounts
cdef class AccountRegistry:
    """Accounts by name. Python calls its methods on the control loop only."""

    def __cinit__(self):
        pthread_mutex_init(&self.lock, NULL)
        self.accounts = {}
        self.table = table_new(FIRST_SLOTS)
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        table_free(self.table)
        pthread_mutex_destroy(&self.lock)

    cdef void *find(self, const char *name, size_t n) noexcept nogil:
        cdef AccountTable *t = <AccountTable *> load_ptr_acquire(<void **> &self.table)
        cdef uint32_t hash = hash_bytes(name, n)
        cdef AccountEntry *e = <AccountEntry *> load_ptr_acquire(<void **> &t.slots[hash & t.mask])
        while e != NULL and not (e.hash == hash and e.name_len == n and memcmp(e.name, name, n) == 0):
            e = <AccountEntry *> load_ptr_acquire(<void **> &e.next)
        return e.account if e != NULL else NULL

    cdef void add_sink(self, AccountSink *sink) noexcept nogil:
        cdef AccountEntry *e
        cdef uint32_t i
        pthread_mutex_lock(&self.lock)
        for i in range(self.table.mask + 1):
            e = self.table.slots[i]
            while e != NULL:
                sink.came(sink, <Account> e.account)
                e = e.next
        sink.next = self.sinks
        self.sinks = sink
        pthread_mutex_unlock(&self.lock)

    cdef void remove_sink(self, AccountSink *sink) noexcept nogil:
        cdef AccountSink **at = &self.sinks
        pthread_mutex_lock(&self.lock)
        while at[0] != NULL and at[0] != sink:
            at = &at[0].next
        if at[0] != NULL:
            at[0] = sink.next
        pthread_mutex_unlock(&self.lock)

    def add(self, bytes name not None, Account account not None) -> None:
        """Add an account, and call the sinks. Raises KeyError for a name that is there, MemoryError."""
        cdef const char *p = PyBytes_AS_STRING(name)
        cdef size_t n = PyBytes_GET_SIZE(name)
        cdef bint added
        if name in self.accounts:
            raise KeyError(name)
        self.accounts[name] = account
        # Sinks may wait for locks that other threads hold: do not keep the GIL from those.
        with nogil:
            added = add_account(self, p, n, account)
        if not added:
            del self.accounts[name]
            raise MemoryError

    def remove(self, bytes name not None) -> None:
        """Remove an account, and call the sinks. Raises KeyError for an unknown name.

        The caller keeps the account alive until every poller has been between two batches.
        """
        cdef const char *p = PyBytes_AS_STRING(name)
        cdef size_t n = PyBytes_GET_SIZE(name)
        cdef Account account = self.accounts.pop(name)
        with nogil:
            remove_account(self, p, n, account)


cdef bint add_account(AccountRegistry r, const char *name, size_t n, Account account) noexcept nogil:
    cdef AccountTable *old = NULL
    cdef AccountTable *fresh
    cdef AccountSink *sink
    cdef bint added
    pthread_mutex_lock(&r.lock)
    if r.n > r.table.mask:
        fresh = table_doubled(r.table)
        if fresh != NULL:   # else the chains get longer
            old = r.table
            store_ptr_release(<void **> &r.table, fresh)
    added = table_add(r.table, name, n, <void *> account)
    if added:
        r.n += 1
        sink = r.sinks
        while sink != NULL:
            sink.came(sink, account)
            sink = sink.next
    pthread_mutex_unlock(&r.lock)
    if old != NULL:
        table_retire(old)
    return added


cdef void remove_account(AccountRegistry r, const char *name, size_t n, Account account) noexcept nogil:
    cdef uint32_t hash = hash_bytes(name, n)
    cdef AccountEntry **at
    cdef AccountEntry *e
    cdef AccountSink *sink
    pthread_mutex_lock(&r.lock)
    at = &r.table.slots[hash & r.table.mask]
    while at[0].account != <void *> account or at[0].name_len != n or memcmp(at[0].name, name, n) != 0:
        at = &at[0].next
    e = at[0]
    store_ptr_release(<void **> at, e.next)
    r.n -= 1
    sink = r.sinks
    while sink != NULL:
        sink.gone(sink, account)
        sink = sink.next
    pthread_mutex_unlock(&r.lock)
    qs_retire(e)


# ---- for tests ----

cdef struct SinkOfProbe:
    AccountSink sink    # first: the registry knows only this
    void *probe         # borrowed AccountProbe


cdef class AccountProbe:
    """A sink; `changes` are (whether it came, account)."""
    cdef SinkOfProbe sink
    cdef AccountRegistry registry
    cdef readonly list changes

    def __cinit__(self, AccountRegistry registry not None):
        self.registry = registry
        self.changes = []
        self.sink.sink.came = record_came
        self.sink.sink.gone = record_gone
        self.sink.probe = <void *> self
        with nogil:
            registry.add_sink(&self.sink.sink)

    def close(self) -> None:
        with nogil:
            self.registry.remove_sink(&self.sink.sink)


cdef void record_came(AccountSink *sink, Account account) noexcept nogil:
    with gil:
        (<AccountProbe> (<SinkOfProbe *> sink).probe).changes.append((True, account))


cdef void record_gone(AccountSink *sink, Account account) noexcept nogil:
    with gil:
        (<AccountProbe> (<SinkOfProbe *> sink).probe).changes.append((False, account))


def find_account(AccountRegistry registry not None, bytes name not None, uint64_t times=1) -> Account | None:
    """Look an account up without the GIL, `times` times, each in a batch of its own. Return what the last found."""
    cdef const char *p = PyBytes_AS_STRING(name)
    cdef size_t n = PyBytes_GET_SIZE(name)
    cdef QsParticipant reader
    cdef void *found = NULL
    qs_register(&reader)
    with nogil:
        while times > 1:
            qs_online(&reader)
            registry.find(p, n)
            qs_offline(&reader)
            qs_reclaim()
            times -= 1
        qs_online(&reader)
        found = registry.find(p, n)
    account = <Account> found if found != NULL else None
    qs_offline(&reader)
    qs_unregister(&reader)
    return account
