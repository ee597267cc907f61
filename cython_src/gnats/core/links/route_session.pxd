"""The session of a route, which connects two servers of a cluster (the protocol half of route.go).

The control plane answers the peer's CONNECT and INFO. When it has registered the peer, it says what the connection
carries (`join`); the session then announces interest and takes the peer's.
"""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, uint32_t, uint8_t

from gnats.core.accounts.account cimport Account
from gnats.core.links.link_session cimport LinkSession
from gnats.core.messages.message cimport Message
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.interest_queue cimport InterestChange


# An account that the connection is to carry, or to carry no longer.
cdef struct CarryChange:
    Slice name
    uint8_t drop


@cython.final
cdef class RouteSession(LinkSession):
    # set by join(), under lock; the owner's from CTL_JOINED on
    cdef uint8_t staged_traces, staged_origins, staged_measured, staged_digests, staged_passes
    cdef int32_t pool_index        # -1: there is no pool
    cdef uint32_t pool_size
    cdef Slice account_name        # of the only account that it carries; n is 0: of a pool, or all
    # Names of the accounts that a pool does not carry. The owner changes it under the registry's lock, with which
    # carries() is called.
    cdef Slice *pinned
    cdef size_t npinned, pinned_cap
    cdef CarryChange *changes      # under lock
    cdef size_t nchanges, changes_cap
    cdef void *permissions_before  # borrowed Permissions, during a change of them
    cdef uint8_t changing

    cdef void take_requests(self, uint32_t ctl) noexcept nogil
    cdef bint carries(self, Account account) noexcept nogil
    cdef void *account_of(self, const Message *m) noexcept nogil
    cdef bint write_change(self, const InterestChange *change) noexcept nogil
    # Queue an RS+ if the permissions allow the subject now and did not before, an RS- if it is the other way round.
    cdef bint write_difference(self, const InterestChange *change) noexcept nogil
    cdef bint write_interest(self, const InterestChange *change, bint begins) noexcept nogil
    cdef void change_permissions(self) noexcept nogil
    cdef void change_accounts(self) noexcept nogil
    cdef bint set_pinned(self, const Slice *name, bint pinned) noexcept nogil
    # -- verbs: the parser calls them --
    cdef int process_inbound_msg(self) noexcept nogil
    cdef int process_sub(self, char *arg, size_t n, bint add) noexcept nogil
