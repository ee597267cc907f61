"""The session of a gateway, which connects two clusters (the protocol half of gateway.go).

A connection is *outbound* for the server that has dialled, *inbound* for the other one. Messages go from outbound to
inbound only, interest from inbound to outbound only: an inbound session announces the interest of its whole cluster, in
all accounts, an outbound one subscribes for the peer's cluster, in the accounts' own sublists.

The control plane answers the peer's CONNECT and INFO. When it has registered the peer (`join`), interest begins to
flow. A session subscribes in accounts that exist; what the peer tells of others is kept aside until they come.
"""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint8_t

from gnats.core.accounts.account cimport Account
from gnats.core.links.link_session cimport LinkSession
from gnats.core.messages.message cimport Message
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.interest_queue cimport InterestChange


@cython.final
cdef class GatewaySession(LinkSession):
    cdef uint8_t outbound          # this server has dialled; set once
    # set by join(), under lock; the owner's from CTL_JOINED on
    cdef uint8_t staged_form, staged_traces, staged_digests
    cdef Slice staged_cluster, staged_command
    cdef Slice command             # an INFO line up to the value of gateway_cmd; of an inbound session
    # -- of an inbound session: names of accounts that do not exist here, and that the peer knows not to exist --
    cdef Slice *unknown
    cdef size_t nunknown, unknown_cap

    cdef void take_requests(self, uint32_t ctl) noexcept nogil
    cdef void begin_to_link(self) noexcept nogil
    # -- interest of this cluster --
    cdef bint write_change(self, const InterestChange *change) noexcept nogil
    cdef bint write_command(self, Account account, bint begins) noexcept nogil
    # -- verbs: the parser calls them --
    cdef int process_sub(self, char *arg, size_t n, bint add) noexcept nogil
    cdef int process_inbound_msg(self) noexcept nogil
    cdef int process_account_sub(self, bint add) noexcept nogil
    cdef void note_unknown_account(self, const Message *m) noexcept nogil
    cdef void forget_unknown(self) noexcept nogil
    # The peer has sent what only the other side of a connection sends.
    cdef int wrong_direction(self, const char *verb) noexcept nogil
