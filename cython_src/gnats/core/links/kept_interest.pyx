"""Interest in accounts that do not exist here; see kept_interest.pxd."""
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
    return a


cdef void drop_account(KeptInterest *kept, KeptAccount *a) noexcept nogil:
    chains_remove(as_chains(kept), as_chained(a))
    if kept.n == 0:
        chains_clear(as_chains(kept))
    free(a)


cdef Subscription *kept_find(const KeptInterest *kept, const Slice *account, const char *sid, size_t n) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    return subtable_find(&a.sids, sid, n) if a != NULL else NULL


cdef bint kept_add(
    KeptInterest *kept, const Slice *account, const char *sid, size_t n, uint32_t weight
) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    cdef Subscription *s
    if a == NULL:
        a = add_account(kept, account)
        if a == NULL:
            return False
    s = sub_new(NULL, ROUTER, sid, 0, sid, 0, sid, n)
    if s == NULL or not subtable_add(&a.sids, s):
        free(s)
        if a.sids.n == 0:
            drop_account(kept, a)
        return False
    s.qw = weight
    return True


cdef void kept_drop(KeptInterest *kept, const Slice *account, Subscription *s) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    subtable_remove(&a.sids, s)
    free(s)
    if a.sids.n == 0:
        drop_account(kept, a)


cdef Subscription *kept_take(KeptInterest *kept, const Slice *account) noexcept nogil:
    cdef KeptAccount *a = find_account(kept, account)
    return take(kept, a) if a != NULL else NULL


cdef Subscription *kept_take_new(KeptInterest *kept, AccountRegistry registry) noexcept nogil:
    cdef KeptAccount *a
    cdef uint32_t i
    if kept.n == 0:
        return NULL
    for i in range(kept.mask + 1):
        a = kept.slots[i]
        while a != NULL:
            if registry.find(a.name, a.name_len) != NULL:
                return take(kept, a)
            a = a.next
    return NULL


cdef Subscription *take(KeptInterest *kept, KeptAccount *a) noexcept nogil:
    cdef Subscription *chain = subtable_take(&a.sids)
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
    chains_clear(as_chains(kept))
