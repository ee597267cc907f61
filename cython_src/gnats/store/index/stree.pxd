"""The subject tree: maps literal subjects to values of a fixed size, in order, searched by filters (stree/stree.go).

An adaptive radix tree (Leis, Kemper, Neumann: The Adaptive Radix Tree) over the bytes of subjects. A leaf has its value
and its whole subject and never moves: the address of a value is valid until its subject is deleted. Inner nodes have up
to 2, 5, 10, 18, 48 or 256 children. Memory comes from an arena of the tree.

A tree has no lock: its owner makes sure that one thread at a time uses it. While an iterator is in use no subject may
be inserted or deleted; values may change.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t, uint64_t

from gnats.store.index.filterorder cimport STreeFilter

cdef enum:
    MAX_TREE_SUBJECT = 65535
    ARENA_CLASSES = 33       # size classes, in steps of 8 bytes; larger blocks come from malloc
    NEAR_FRAMES = 32         # frames and states that an iterator has room for without malloc
    NEAR_STATES = 64


cdef struct SimpleState:
    # A store's value of a subject. While a needs_update flag is set, that sequence is a bound; see gnats.store.base.
    uint64_t msgs, first, last    # messages; sequences of the first and the last one
    uint32_t first_block, last_block    # indices of their blocks; first_block may be too small, last_block too large
    uint8_t first_needs_update, last_needs_update


cdef struct ArenaChunk:
    ArenaChunk *next
    size_t size


cdef struct ArenaLarge:
    ArenaLarge *next
    ArenaLarge *prev


cdef struct Arena:
    void *free[ARENA_CLASSES]    # lists of freed blocks, by size class
    ArenaChunk *chunks       # the newest first
    ArenaLarge *large        # blocks from malloc
    char *at                 # the unused rest of the newest chunk
    char *end
    size_t bytes             # allocated for chunks and large blocks


cdef struct STree:
    void *root               # NULL, a node, or a leaf (lowest bit set)
    uint64_t size            # subjects
    size_t value_size        # bytes
    uint64_t subject_bytes   # sum of the lengths of all subjects
    Arena arena


cdef struct STreeState:
    # How far some filters, which have the same bytes up to here, match the bytes on the way down.
    uint32_t first, end      # filters[first:end]
    uint32_t at              # 2 * (position in the filters + 1), and 1 more inside the token of a `*`
    uint32_t done            # bytes of the current step that are behind it


cdef struct STreeFrame:
    # A node on the way down.
    void *node
    uint32_t pos             # position of the next child
    uint32_t depth           # bytes of the subject up to here, the node's prefix included
    uint32_t states          # the filters that may still match: STreeIter.states[states:states + n]
    uint32_t n
    int16_t only             # the one key that can match; ANY_KEY: not known; NO_KEY: done
    uint8_t all              # all subjects below match


cdef struct STreeIter:
    # results of stree_next()
    const char *subject
    size_t subject_n
    void *value
    bint failed              # out of memory: some subjects were not found
    # internal
    STree *tree
    const STreeFilter *filters
    uint32_t n_filters
    uint32_t depth, n_states
    uint32_t frames_room, states_room
    STreeFrame *frames
    STreeState *states
    void *lone               # the root, if it is a leaf
    STreeFrame near_frames[NEAR_FRAMES]
    STreeState near_states[NEAR_STATES]


# Make an empty tree. value_size is a multiple of 8.
cdef void stree_init(STree *t, size_t value_size) noexcept nogil
# Delete all subjects and free the memory.
cdef void stree_clear(STree *t) noexcept nogil

# Return the value of a subject; NULL: the tree does not have it.
cdef void *stree_find(const STree *t, const char *subject, size_t n) noexcept nogil
# Return the value of a subject; insert the subject with a value of zeroes if it is new. NULL: no memory, or n is 0 or
# over MAX_TREE_SUBJECT.
cdef void *stree_insert(STree *t, const char *subject, size_t n, bint *was_there) noexcept nogil
# Delete a subject and copy its value to `value` (may be NULL). False: the tree does not have it.
cdef bint stree_delete(STree *t, const char *subject, size_t n, void *value) noexcept nogil

# Iterate over the subjects that match one of the filters (no filters: all), each once, in the order of their bytes.
# stree_next() returns False after the last one; call stree_end() then. Several filters must be in the order of
# sort_filters() (gnats.store.index.filter). The filters must outlive the iterator; the iterator must not move.
cdef void stree_iter(STreeIter *it, STree *t, const STreeFilter *filters, uint32_t n_filters) noexcept nogil
cdef bint stree_next(STreeIter *it) noexcept nogil
cdef void stree_end(STreeIter *it) noexcept nogil
