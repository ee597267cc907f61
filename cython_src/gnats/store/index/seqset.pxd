"""Sets of sequences, such as those deleted between a block's first and last message (avl/seqset.go).

A node covers 2048 sequences with a bitmap of 32 words; a full node has no bitmap. Nodes are an array sorted by their
first sequence. nats-server keeps its nodes in an AVL tree, and the encoding describes such a tree: nodes in the order
of a walk (node, left, right), each with its height.

A set has no lock: its owner makes sure that one thread at a time uses it. That includes look-ups, which write `near`.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    NODE_BITS = 2048
    NODE_WORDS = 32


cdef struct SeqNode:
    uint64_t base            # first sequence, a multiple of NODE_BITS
    uint64_t *words          # bit i is sequence base + i; NULL: all are members


cdef struct SeqSet:
    SeqNode *nodes           # sorted by base; each has a member
    size_t n                 # nodes
    size_t room              # nodes that fit into the array
    size_t near              # index of the node found last, where the next search begins
    uint64_t size            # members


cdef enum SeqSetError:
    SEQSET_BAD = -1          # not an encoded set
    SEQSET_NO_MEMORY = -2


# Free the nodes. A zeroed struct is an empty set.
cdef void seqset_clear(SeqSet *s) noexcept nogil
# Copy into an empty set. 0 or SEQSET_NO_MEMORY.
cdef int seqset_copy(SeqSet *to, const SeqSet *s) noexcept nogil

cdef bint seqset_exists(SeqSet *s, uint64_t seq) noexcept nogil
# Insert a sequence. 1: inserted, 0: it was a member, or SEQSET_NO_MEMORY.
cdef int seqset_insert(SeqSet *s, uint64_t seq) noexcept nogil
# Delete a sequence. False: it was no member, or there is no memory to delete it.
cdef bint seqset_delete(SeqSet *s, uint64_t seq) noexcept nogil

# Insert or delete the sequences from first to last, both included. Return how many changed, or SEQSET_NO_MEMORY, when
# some of them may have changed.
cdef int64_t seqset_insert_range(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil
cdef int64_t seqset_delete_range(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil
# Make sure that everything from a sequence on can be deleted without memory. False: no memory.
cdef bint seqset_prepare_cut(SeqSet *s, uint64_t first) noexcept nogil
cdef uint64_t seqset_count(SeqSet *s, uint64_t first, uint64_t last) noexcept nogil    # members from first to last

# Return the smallest or the largest member; 0 for an empty set.
cdef uint64_t seqset_first(const SeqSet *s) noexcept nogil
cdef uint64_t seqset_last(const SeqSet *s) noexcept nogil
# Get the first run of consecutive members at or after start; False when there is none.
cdef bint seqset_next_range(SeqSet *s, uint64_t start, uint64_t *first, uint64_t *last) noexcept nogil
# Return the first sequence at or after seq that is no member; the last one at or before it. 0 when there is none.
cdef uint64_t seqset_next_absent(SeqSet *s, uint64_t seq) noexcept nogil
cdef uint64_t seqset_prev_absent(SeqSet *s, uint64_t seq) noexcept nogil

cdef size_t seqset_encoded_size(const SeqSet *s) noexcept nogil
cdef size_t seqset_encode(const SeqSet *s, uint8_t *out) noexcept nogil              # bytes written
# Decode into an empty set. The bytes read, or a SeqSetError; then the set is empty.
cdef int64_t seqset_decode(SeqSet *s, const uint8_t *data, size_t n) noexcept nogil
cdef size_t seqset_memory(const SeqSet *s) noexcept nogil                            # bytes held


cdef class SequenceSet:
    cdef SeqSet set
