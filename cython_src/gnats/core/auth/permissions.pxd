"""Permissions of a user, compiled: subjects to publish and to subscribe to, and responses (client.go's permissions).

A Permissions never changes once it is made: clients of all pollers read its tries without their lock. A check walks at
most two of them; core.auth.permission_cache caches the answers.
"""
cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

from gnats.core.subjects.sublist cimport Sublist


@cython.final
cdef class Permissions:
    cdef object __weakref__
    cdef readonly uint64_t id       # unique in this process, never used again
    cdef readonly tuple errors      # entries left out as invalid, in the log's words
    cdef readonly bint restricts_publish
    cdef readonly bint restricts_delivery   # an allowed subscription may match denied subjects
    cdef readonly bint responses    # the replies of received messages may be published to
    cdef readonly int64_t max_responses     # publications for each reply; negative: any number
    cdef readonly int64_t response_expires  # ns; negative: never
    # None: there is no such list, so it restricts nothing
    cdef Sublist pub_allow, pub_deny, sub_allow, sub_deny
    cdef list entries               # owns the subscriptions in these lists

    # Return whether this subject may be published to, without regard to replies. `kind` is the connection's.
    cdef bint pub_allowed(self, int kind, const char *subject, size_t n) noexcept nogil

    # Return whether this subject may be subscribed to, in a queue group when qn > 0.
    cdef bint can_subscribe(
        self, int kind, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil

    # Return whether an allowed subscription may match denied subjects, so that each delivery must be checked.
    cdef bint needs_filter(self, const char *subject, size_t n, size_t qn) noexcept nogil

    # Return whether a delivery of this subject to a subscription in this queue group is denied (checkDenySub).
    cdef bint delivery_denied(self, const char *subject, size_t n, const char *queue, size_t qn) noexcept nogil
