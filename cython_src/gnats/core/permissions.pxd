"""What a user may publish, subscribe to and be sent, compiled (the permissions of client.go).

A Permissions never changes once it is made: its tries are read without their lock, by any number of clients of any
poller. A check walks at most two of them; core.verdicts remembers the answers.
"""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.core.sublist cimport Sublist


@cython.final
cdef class Permissions:
    cdef object __weakref__
    cdef readonly uint64_t id       # of no other one in this process, ever
    cdef readonly tuple errors      # entries that were left out, as the log words them
    cdef readonly bint restricts_publish
    cdef readonly bint restricts_delivery   # some subscription that is allowed may match what is denied
    cdef readonly bint responses    # the reply subjects of received messages may be published to
    cdef readonly int64_t max_responses     # for each; negative: any number
    cdef readonly int64_t response_expires  # ns; negative: never
    # None: there is no such list
    cdef Sublist pub_allow, pub_deny, sub_allow, sub_deny
    cdef list entries               # own the subscriptions in them

    # May this be published to, replies to received messages left aside? `kind` is the connection's.
    cdef bint pub_allowed(self, int kind, const char *subject, size_t n) noexcept nogil

    # May this be subscribed to, in the queue group if qn is not 0?
    cdef bint can_subscribe(
        self, int kind, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil

    # Can a subscription that is allowed be sent what is denied, so that deliveries have to be checked?
    cdef bint needs_filter(self, const char *subject, size_t n, size_t qn) noexcept nogil

    # May a message not be delivered to a subscription of this queue group (checkDenySub)?
    cdef bint delivery_denied(self, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil
