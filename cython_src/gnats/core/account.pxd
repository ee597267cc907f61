"""The data plane's half of an account (accounts.go): what a message published in it needs to be routed.

Connections borrow it; the control plane keeps it alive for as long as one of them is bound to it. Fields that
change while messages flow are atomic pointers to what is immutable, and the old one is retired (core.quiesce).
"""
from libc.stdint cimport uint64_t

from gnats.core.mappings cimport Mappings
from gnats.core.sublist cimport Sublist
from gnats.includes.atomics cimport load64_acquire


cdef class Account:
    cdef readonly Sublist sublist   # the subscriptions made in it; set once
    cdef Mappings *mappings         # NULL for none; atomic


cdef inline Mappings *account_mappings(Account a) noexcept nogil:
    """Good until the end of the batch."""
    return <Mappings *> load64_acquire(<uint64_t *> &a.mappings)
