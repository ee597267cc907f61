"""Subscriptions of a connection: made, ended, and looked at again when its permissions change. All the owner's.

A subscription is in the connection's table, in the sublist of its account, and has a shadow for each import that it is
about (core.imports).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from gnats.core.message cimport NativeSub
from gnats.core.subscriber cimport Subscriber
from gnats.core.sublist cimport Subscription


# Subscribe in the account; NULL and error[0] < 0 for an invalid subject, 0 without memory.
cdef Subscription *add_sub(Subscriber c, char *subject, size_t sn, char *queue, size_t qn, char *sid, size_t n,
                           int *error) noexcept nogil
# Subscribe `native` (copied) with a sid of its own, in the account; the control loop. NULL as add_sub.
cdef Subscription *add_native_sub(Subscriber c, const char *subject, size_t sn, const char *queue, size_t qn,
                                  const NativeSub *native, int *error) noexcept nogil
cdef void unsubscribe(Subscriber c, Subscription *s) noexcept nogil
# End those that other threads' deliveries have exhausted.
cdef void unsubscribe_exhausted(Subscriber c) noexcept nogil
# Take new permissions; end what is subscribed and not allowed by them (processSubsOnConfigReload).
cdef void apply_permissions(Subscriber c) noexcept nogil

# Too many to be taken out in one batch, with others waiting?
cdef bint has_many_subs(Subscriber c) noexcept nogil
cdef void remove_all_subs(Subscriber c) noexcept nogil
# Take some out, once the connection is closed; False: there are none left.
cdef bint remove_some_subs(Subscriber c) noexcept nogil
