"""Make and remove the subscriptions of a connection; check them again when its permissions change. The owner's.

A subscription is in the connection's table and in the sublist of its account. For each stream import that it overlaps
it has a shadow (core.accounts.imports).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.accounts.subscriber cimport Subscriber
from gnats.core.messages.message cimport NativeSub
from gnats.core.subjects.sublist cimport Subscription


# Subscribe in the connection's account. NULL: error[0] is < 0 for an invalid subject, 0 without memory.
cdef Subscription *add_sub(Subscriber c, char *subject, size_t sn, char *queue, size_t qn, char *sid, size_t n,
                           int *error) noexcept nogil
# Subscribe a function: `native` is copied, the sid made here. Control loop only. NULL: as add_sub.
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
