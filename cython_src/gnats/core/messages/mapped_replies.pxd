"""Mapped replies that a client was sent requests with: it sees and uses the plain reply (trackGWReply in gateway.go).

A client that answers such a request publishes to the plain reply; here it finds the mapped one, for a while. After
that the interest of the requester is known here, and a message to the plain reply finds its way. When a table takes too
much memory, the oldest replies go first.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t

from gnats.core.runtime.slice cimport Slice


cdef struct MappedReply:
    MappedReply *next    # in its bucket
    uint32_t hash        # of the plain reply
    uint32_t n           # bytes of `text`
    MappedReply *older
    MappedReply *newer
    int64_t when         # monotonic ns of the last request with it
    char text[1]         # the mapped reply


# An empty one is all zeros. The caller guards it with a lock.
cdef struct MappedReplies:
    MappedReply **slots
    uint32_t mask        # number of buckets - 1; 0 before the first entry
    uint32_t n
    MappedReply *oldest
    MappedReply *newest
    size_t nbytes        # of all replies


cdef void mapped_clear(MappedReplies *t) noexcept nogil
# Remember a mapped reply, or that it has been used again; a plain reply has one mapped reply, the last. False without
# memory.
cdef bint mapped_note(MappedReplies *t, const Slice *mapped, int64_t now) noexcept nogil
# Return the mapped reply of a plain one, good until the table changes; NULL: there is none.
cdef const MappedReply *mapped_find(const MappedReplies *t, const Slice *plain, int64_t now) noexcept nogil
# Forget those that are too old.
cdef void mapped_sweep(MappedReplies *t, int64_t now) noexcept nogil
