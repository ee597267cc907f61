"""Make and remove the subscriptions of a connection; check them again when its permissions change. The owner's.

A subscription is in the connection's table and in the sublist of an account. A client subscribes in its own account; a
session that speaks for many clients, as that of a route does, may subscribe in any. For each stream import that it
overlaps, a subscription in the connection's own account has a shadow (core.accounts.imports).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.accounts.account cimport Account
from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport NativeSub
from gnats.core.subjects.sublist cimport SUB_ACCOUNT, Subscription


# Stands before a subscription of a link (SUB_ACCOUNT), in its memory block.
cdef struct AccountSub:
    void *account          # borrowed Account
    uint32_t came          # when it came: see sub_came
    uint32_t told          # HeardInterest.round (core.links.remote_subs) when the peer told of it last; the owner's


cdef inline AccountSub *account_sub(const Subscription *s) noexcept nogil:
    return <AccountSub *> (<char *> s - sizeof(AccountSub))


cdef inline void *sub_account(const Subscription *s) noexcept nogil:
    """Return the borrowed Account of a subscription that add_sub() or add_native_sub() has made."""
    return account_sub(s).account if s.flags & SUB_ACCOUNT else (<Subscriber> s.client).account


cdef inline uint32_t sub_came(const Subscription *s) noexcept nogil:
    """Return the moment (core.runtime.moment) that a subscription came; not for shadows."""
    return account_sub(s).came if s.flags & SUB_ACCOUNT else s.qw


# Subscribe in the connection's own account. NULL: error[0] is < 0 for an invalid subject, 0 without memory.
cdef Subscription *add_sub(Subscriber c, Account account, const char *subject, size_t sn, const char *queue, size_t qn,
                           const char *sid, size_t n, int *error) noexcept nogil
# Subscribe for a link, in an account that stays alive as long as the subscription; `qw` is the weight in a queue group.
# NULL: as add_sub.
cdef Subscription *add_remote_sub(
    Subscriber c, Account account, const char *subject, size_t sn, const char *queue, size_t qn, uint32_t qw,
    const char *sid, size_t n, int *error) noexcept nogil
# Subscribe a function in the connection's account: `native` is copied, the sid made here. Control loop only. NULL: as
# add_sub.
cdef Subscription *add_native_sub(Subscriber c, const char *subject, size_t sn, const char *queue, size_t qn,
                                  const NativeSub *native, int *error) noexcept nogil
# Remove a subscription, unless another call has.
cdef void unsubscribe(Subscriber c, Subscription *s) noexcept nogil
# Remove the subscriptions that other threads' deliveries have exhausted.
cdef void unsubscribe_exhausted(Subscriber c) noexcept nogil
# Install the staged permissions; remove subscriptions that they do not allow (processSubsOnConfigReload).
cdef void apply_permissions(Subscriber c) noexcept nogil

cdef void remove_all_subs(Subscriber c) noexcept nogil
# The connection is closing: note what monitoring shows of its subscriptions, and remove them. True: there are too many
# for one batch, and remove_some_subs() removes them (SessionType.closing and .leave).
cdef bint end_subscriptions(Subscriber c) noexcept nogil
# Remove some subscriptions of a closed connection; False: none is left.
cdef bint remove_some_subs(Subscriber c) noexcept nogil
