"""Sets of sequences: what is deleted between the first and the last message of a block or a stream (avl/seqset.go).

2048 sequences are a node of 32 words, the nodes are sorted by their first sequence; a node that has all of its
sequences has no words at all. nats-server keeps its nodes in an AVL tree, and that is what the encoding describes:
encoded nodes are in the order of a walk (node, left, right) of such a tree, with their heights.

The owner of a set has the lock.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    NODE_BITS = 2048
    NODE_WORDS = 32


cdef struct SeqNode:
    uint64_t base            # a multiple of NODE_BITS
    uint64_t *words          # bit i of the node is base + i; NULL: all of them


cdef struct SeqSet:
    SeqNode *nodes           # sorted by base, never empty ones
    size_t n                 # nodes
    size_t room
    size_t near              # the node that was found last: neighbours are asked for one after the other
    uint64_t size            # members


cdef enum SeqSetError:
    SEQSET_BAD = -1          # not an encoded set
    SEQSET_NO_MEMORY = -2


# A set of zeroes is an empty one.
cdef void seqset_clear(SeqSet *s) noexcept nogil
# Into an empty set; 0 or SEQSET_NO_MEMORY.
cdef int seqset_copy(SeqSet *to, const SeqSet *s) noexcept nogil

cdef bint seqset_exists(SeqSet *s, uint64_t seq) noexcept nogil
cdef int seqset_insert(SeqSet *s, uint64_t seq) noexcept nogil                       # 1, 0: was there, SEQSET_NO_MEMORY
# Was it there? Out of memory it stays.
cdef bint seqset_delete(SeqSet *s, uint64_t seq) noexcept nogil

# From first to last, both included. What was inserted or deleted; out of memory, a part of it may have been.
cdef int64_t seqset_insert_range(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil    # SEQSET_NO_MEMORY
cdef int64_t seqset_delete_range(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil    # SEQSET_NO_MEMORY
cdef uint64_t seqset_count(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil

cdef uint64_t seqset_first(const SeqSet *s) noexcept nogil                           # 0 for an empty set
cdef uint64_t seqset_last(const SeqSet *s) noexcept nogil
# The first run of members at or after start; False when there is none.
cdef bint seqset_next_range(SeqSet *s, uint64_t start, uint64_t *first, uint64_t *last) noexcept nogil
# The first sequence at or after seq that is no member, and the last one at or before it; 0 when there is none.
cdef uint64_t seqset_next_absent(SeqSet *s, uint64_t seq) noexcept nogil
cdef uint64_t seqset_prev_absent(SeqSet *s, uint64_t seq) noexcept nogil

cdef size_t seqset_encoded_size(const SeqSet *s) noexcept nogil
cdef size_t seqset_encode(const SeqSet *s, uint8_t *out) noexcept nogil              # bytes written
# Into an empty set: the bytes read, or a SeqSetError, after which the set is empty.
cdef int64_t seqset_decode(SeqSet *s, const uint8_t *data, size_t n) noexcept nogil
cdef size_t seqset_memory(const SeqSet *s) noexcept nogil                            # bytes held


cdef class SequenceSet:
    cdef SeqSet set
