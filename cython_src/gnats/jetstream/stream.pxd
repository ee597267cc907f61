"""A stream (stream.go), as the control plane uses it."""
from libc.stdint cimport int64_t

from gnats.jetstream.streamcore cimport StreamCore


cdef class Stream(StreamCore):
    cdef dict subs                 # subject (with its function) -> address of the Subscription
    cdef bytes origin              # the stream that it answers direct gets to, too; b"" for none
    cdef readonly object config    # what configure() was given

    cdef int subscribe_native(self, bytes subject, bytes queue, int which) except -1
    cdef int rebuild_dedupe(self) except -1
    cdef void account_for(self, int64_t delta) noexcept
