"""The data plane's half of an account; see account.pxd."""
from gnats.core.sublist cimport Sublist


cdef class Account:
    """An isolated subject space; `sublist` holds its subscriptions."""

    def __cinit__(self, *args, **kwargs):
        self.sublist = Sublist()
