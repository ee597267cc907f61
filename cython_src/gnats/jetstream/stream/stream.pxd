"""A stream (stream.go): the methods that the control plane calls."""
from libc.stdint cimport int64_t

from gnats.jetstream.state.entry cimport StreamChange
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.removing cimport Purge


cdef class Stream(StreamCore):
    cdef dict subs                 # (subject, function) -> address of the Subscription
    cdef bytes origin              # name of the mirrored stream whose direct gets it answers as well; b"" for none
    cdef readonly object config    # the StreamConfig of the last configure()

    cdef int subscribe_to(self, bytes subject, bytes queue, int which) except -1
    cdef int propose(self, const StreamChange *change, Purge *part) noexcept
    cdef int rebuild_dedupe(self) except -1
    cdef void account_for(self, int64_t delta) noexcept
