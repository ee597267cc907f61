"""The data plane's half of an account (accounts.go): what a message published in it needs to be routed.

Connections borrow it; the control plane keeps it alive for as long as one of them is bound to it. Fields that
change while messages flow are atomic pointers to what is immutable, and the old one is retired (core.quiesce).
"""
from gnats.core.sublist cimport Sublist


cdef class Account:
    cdef readonly Sublist sublist   # the subscriptions made in it; set once
