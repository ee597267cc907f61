"""The data plane's half of an account; see account.pxd."""
import cython

from libc.stdint cimport uint64_t
from libc.stdlib cimport free

from gnats.core.mappings cimport Mappings, mappings_compile
from gnats.core.quiesce cimport qs_retire
from gnats.core.sublist cimport Sublist
from gnats.includes.atomics cimport exchange64


@cython.no_gc_clear
cdef class Account:
    """An isolated subject space; `sublist` holds its subscriptions."""

    def __cinit__(self, *args, **kwargs):
        self.sublist = Sublist()

    def __dealloc__(self):
        free(self.mappings)

    def set_mappings(self, list rows) -> None:
        """What messages published in this account from now on are mapped by: [(source, [(SubjectTransform, upto)])].

        The first source that matches counts; of its destinations the first whose `upto` is over a random number of
        0 to 99, and without such a one the message is lost. Raises MemoryError.
        """
        cdef Mappings *fresh = mappings_compile(rows) if rows else NULL
        cdef Mappings *old = <Mappings *> exchange64(<uint64_t *> &self.mappings, <uint64_t> fresh)
        if old != NULL:
            qs_retire(old)
