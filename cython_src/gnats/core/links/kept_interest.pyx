"""Interest in accounts that do not exist here; see kept_interest.pxd."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.runtime.hash_table cimport as_chained, as_chains, chains_add, chains_clear, chains_remove
from gnats.core.runtime.kinds cimport ROUTER
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.subject cimport hash_bytes
from gnats.core.subjects.sublist cimport Subscription, sub_new
from gnats.core.subjects.subtable cimport subtable_add, subtable_find, subtable_remove, subtable_take

cdef enum:
    FIRST_SLOTS = 8
    SLOT = sizeof(void *)


cdef inline size_t size_of_account(const KeptAccount *a) noexcept nogil:
    return sizeof(KeptAccount) + a.name_len + FIRST_SLOTS * SLOT


cdef inline size_t size_of_sub(const Subscription *s) noexcept nogil:
    return sizeof(Subscription) + s.sid_len + SLOT


cdef KeptAccount *find_account(const KeptInterest *kept, const Slice *account) noexcept nogil:
    cdef uint32_t hash
    cdef KeptAccount *a
    if kept.n == 0:
        return NULL
    hash = hash_bytes(account.p, account.n)
    a = kept.slots[hash & kept.mask]
    while a != NULL and not (
            a.hash == hash and a.name_len == account.n and memcmp(a.name, account.p, account.n) == 0):
        a = a.next
    return a


cdef KeptAccount *add_account(KeptInterest *kept, const Slice *account) noexcept nogil:
    cdef KeptAccount *a = <KeptAccount *> malloc(sizeof(KeptAccount) + account.n)
    if a == NULL:
        return NULL
    memset(a, 0, sizeof(KeptAccount))
    a.hash = hash_bytes(account.p, account.n)
    a.name_len = <uint32_t> account.n
    memcpy(a.name, account.p, account.n)
    if not chains_add(as_chains(kept), as_chained(a), FIRST_SLOTS):
        free(a)
        return NULL
    kept.nbytes += size_of_account(a)
    return a


cdef void drop_account(KeptInterest *kept, KeptAccount *a) noexcept nogil:
    kept.nbytes -= size_of_account(a)
    chains_remove(as_chains(kept), as_chained(a))
    if kept.n == 0:
        chains_clear(as_chains(kept))
    free(a)


cdef Subscription *kept_find(const KeptInterest *kept, const Slice *account, const char *sid, size_t n) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    return subtable_find(&a.sids, sid, n) if a != NULL else NULL


cdef KeptOutcome kept_add(
    KeptInterest *kept, const Slice *account, const char *sid, size_t n, uint32_t weight
) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    cdef Subscription *s
    if kept.nbytes >= MOST_KEPT:
        return KEPT_FULL
    if a == NULL:
        a = add_account(kept, account)
        if a == NULL:
            return KEPT_NO_MEMORY
    s = sub_new(NULL, ROUTER, sid, 0, sid, 0, sid, n)
    if s == NULL or not subtable_add(&a.sids, s):
        free(s)
        if a.sids.n == 0:
            drop_account(kept, a)
        return KEPT_NO_MEMORY
    s.qw = weight
    kept.nbytes += size_of_sub(s)
    return KEPT


cdef void kept_drop(KeptInterest *kept, const Slice *account, Subscription *s) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    subtable_remove(&a.sids, s)
    kept.nbytes -= size_of_sub(s)
    free(s)
    if a.sids.n == 0:
        drop_account(kept, a)


cdef Subscription *kept_take(KeptInterest *kept, const Slice *account) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    return take(kept, a) if a != NULL else NULL


cdef Subscription *kept_take_new(KeptInterest *kept, AccountRegistry registry, uint32_t *at) noexcept nogil:
    cdef KeptAccount *a
    cdef Subscription *chain
    cdef uint32_t mask = kept.mask
    while kept.n and at[0] <= mask:
        a = kept.slots[at[0]]
        while a != NULL:
            if registry.find(a.name, a.name_len) != NULL:
                chain = take(kept, a)
                if kept.mask != mask:
                    at[0] = 0   # the table has shrunk, which has put the others elsewhere
                return chain
            a = a.next
        at[0] += 1
    return NULL


cdef Subscription *take(KeptInterest *kept, KeptAccount *a) noexcept nogil:
    cdef Subscription *chain = subtable_take(&a.sids)
    cdef Subscription *s = chain
    while s != NULL:
        kept.nbytes -= size_of_sub(s)
        s = s.next
    drop_account(kept, a)
    return chain


cdef void kept_free(KeptInterest *kept) noexcept nogil:
    cdef KeptAccount *a
    cdef Subscription *s
    cdef Subscription *following
    cdef uint32_t i
    if kept.n == 0:
        return
    for i in range(kept.mask + 1):
        while kept.slots[i] != NULL:
            a = kept.slots[i]
            kept.slots[i] = a.next
            s = subtable_take(&a.sids)
            while s != NULL:
                following = s.next
                free(s)
                s = following
            free(a)
    kept.nbytes = 0
    chains_clear(as_chains(kept))


# ---- for tests ----

cdef class KeptTable:
    """Sids and weights by account."""
    cdef KeptInterest table

    def __dealloc__(self):
        kept_free(&self.table)

    def __len__(self):
        return self.table.n

    @property
    def nbytes(self) -> int:
        return self.table.nbytes

    def add(self, bytes account not None, bytes sid not None) -> bool:
        """Return whether it is kept. Raises MemoryError."""
        cdef Slice name = slice_of(account)
        cdef KeptOutcome outcome = kept_add(&self.table, &name, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid), 1)
        if outcome == KEPT_NO_MEMORY:
            raise MemoryError
        return outcome == KEPT

    def drop(self, bytes account not None, bytes sid not None) -> bool:
        """Return whether it was kept."""
        cdef Slice name = slice_of(account)
        cdef Subscription *s = kept_find(&self.table, &name, PyBytes_AS_STRING(sid), PyBytes_GET_SIZE(sid))
        if s == NULL:
            return False
        kept_drop(&self.table, &name, s)
        return True

    def take_new(self, AccountRegistry registry not None) -> int:
        """Take all of accounts that exist; return how many sids that were."""
        cdef uint32_t at = 0
        cdef Subscription *s = kept_take_new(&self.table, registry, &at)
        cdef Subscription *following
        taken = 0
        while s != NULL:
            taken += 1
            following = s.next
            free(s)
            s = following
            if s == NULL:
                s = kept_take_new(&self.table, registry, &at)
        return taken


cdef Slice slice_of(bytes text):
    cdef Slice slice
    slice.p = PyBytes_AS_STRING(text)
    slice.n = PyBytes_GET_SIZE(text)
    return slice
