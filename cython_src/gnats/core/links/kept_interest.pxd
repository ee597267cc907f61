"""The interest that a peer tells of in accounts that do not exist here; it is of use once they come.

By account, the sids and weights of the subscriptions that are to be: see core.links.remote_subs. Owner only. A peer
may tell of any number of accounts, so there is a limit.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.accounts.registry cimport AccountRegistry
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.sublist cimport Subscription
from gnats.core.subjects.subtable cimport SubTable


cdef enum:
    MOST_KEPT = 64 * 1024 * 1024   # bytes, about


cdef enum KeptOutcome:
    KEPT
    KEPT_FULL
    KEPT_NO_MEMORY


cdef struct KeptAccount:
    KeptAccount *next        # in its bucket
    uint32_t hash
    uint32_t name_len
    SubTable sids            # subscriptions that have only a sid and a weight, and are in no sublist
    char name[1]


cdef struct KeptInterest:
    KeptAccount **slots
    uint32_t mask
    uint32_t n
    size_t nbytes


# Return what is kept by a sid; NULL: nothing.
cdef Subscription *kept_find(const KeptInterest *kept, const Slice *account, const char *sid, size_t n) noexcept nogil
# Keep a sid that is not there, with a weight.
cdef KeptOutcome kept_add(
    KeptInterest *kept, const Slice *account, const char *sid, size_t n, uint32_t weight) noexcept nogil
# Forget what kept_find() has found.
cdef void kept_drop(KeptInterest *kept, const Slice *account, Subscription *s) noexcept nogil
# Take all that is kept of an account, chained through `next`; free() each. NULL: there is nothing.
cdef Subscription *kept_take(KeptInterest *kept, const Slice *account) noexcept nogil
# Take all of an account that exists by now, in the same way. `at` is 0 at first, and the same in further calls.
cdef Subscription *kept_take_new(KeptInterest *kept, AccountRegistry registry, uint32_t *at) noexcept nogil
cdef void kept_free(KeptInterest *kept) noexcept nogil
