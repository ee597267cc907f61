"""What a consumer with replicas has proposed to its Raft group.

At this server an entry counts as soon as it is proposed. What follows from it, a message or an answer, is sent when the
group has committed it. No lock of its own: the consumer's is held.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    MOST_UNDER_WAY = 4096    # proposals that are not committed: beyond it, nothing is delivered


cdef struct Proposals:
    uint64_t n               # how many were proposed,
    uint64_t committed       # and committed
    char *p                  # those that the group has not taken yet: each follows its length, 2 bytes
    size_t used, cap


cdef enum:
    LENGTH = 2               # bytes of the length before a proposal


# Return the length of the proposal at `p`, which LENGTH bytes stand before.
cdef inline size_t proposal_size(const char *p) noexcept nogil:
    cdef uint16_t length
    memcpy(&length, p, LENGTH)
    return length


# Make room for one of `size` bytes at most. NULL when out of memory.
cdef char *proposals_room(Proposals *q, size_t size) noexcept nogil
# Add the one that was written to proposals_room(), of n bytes.
cdef void proposals_add(Proposals *q, size_t n) noexcept nogil
# Free the memory; what was not taken is lost.
cdef void proposals_free(Proposals *q) noexcept nogil
