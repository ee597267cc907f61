"""The subject tree: from literal subjects to a struct of fixed size, ordered, searched by filters (stree/stree.go).

An adaptive radix tree (Leis, Kemper, Neumann: The Adaptive Radix Tree) over the bytes of subjects. A leaf holds its
whole subject and never moves, so a value's address is good until its subject is deleted; inner nodes have 2, 5,
10, 18, 48 or 256 children. Memory comes from chunks that belong to the tree.

The owner of a tree has the lock. A tree must not get or lose subjects while an iterator is at work; values may change.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    MAX_TREE_SUBJECT = 65535
    ARENA_CLASSES = 33       # of 8 bytes each; larger blocks are malloc's
    NEAR_FRAMES = 32
    NEAR_STATES = 64


cdef struct SimpleState:
    # what a store knows of the messages of a subject
    uint64_t msgs, first, last
    uint32_t first_block, last_block
    uint8_t first_needs_update, last_needs_update


cdef struct ArenaChunk:
    ArenaChunk *next
    size_t size


cdef struct ArenaLarge:
    ArenaLarge *next
    ArenaLarge *prev


cdef struct Arena:
    void *free[ARENA_CLASSES]
    ArenaChunk *chunks
    ArenaLarge *large
    char *at                 # what is left of the newest chunk
    char *end
    size_t bytes             # held


cdef struct STree:
    void *root               # a node, or a leaf with the lowest bit set
    uint64_t size            # subjects
    size_t value_size
    uint64_t subject_bytes   # in all subjects
    Arena arena


cdef struct STreeFilter:
    const char *at           # a valid subject, wildcards allowed
    size_t n


cdef struct STreeState:
    # how far a filter got: the position in it twice, plus one within the token of a `*`
    uint32_t filter
    uint32_t at


cdef struct STreeFrame:
    # a node on the way down
    void *node
    uint32_t pos             # its next child
    uint32_t depth           # bytes of the subject that lead here
    uint32_t states          # filters still possible here: states[states:states + n]
    uint32_t n
    int16_t only             # the one key that can match, ANY_KEY, NO_KEY
    uint8_t all              # everything below matches


cdef struct STreeIter:
    # set by stree_next()
    const char *subject
    size_t subject_n
    void *value
    bint failed              # out of memory: not everything was found
    # its own
    STree *tree
    const STreeFilter *filters
    uint32_t n_filters
    uint32_t depth, n_states
    uint32_t frames_room, states_room
    STreeFrame *frames
    STreeState *states
    void *lone               # a root that is a leaf
    STreeFrame near_frames[NEAR_FRAMES]
    STreeState near_states[NEAR_STATES]


# value_size is a multiple of 8.
cdef void stree_init(STree *t, size_t value_size) noexcept nogil
cdef void stree_clear(STree *t) noexcept nogil

# The value of a subject, NULL when it has none.
cdef void *stree_find(const STree *t, const char *subject, size_t n) noexcept nogil
# The value of a subject; of zeroes when it is new. NULL when out of memory, or n is 0 or over MAX_TREE_SUBJECT.
cdef void *stree_insert(STree *t, const char *subject, size_t n, bint *was_there) noexcept nogil
# Was it there? Its value goes to `value`, which may be NULL.
cdef bint stree_delete(STree *t, const char *subject, size_t n, void *value) noexcept nogil

# All subjects that match one of the filters, each once, in the order of their bytes; without filters, all subjects.
# The filters must outlive the iterator, which must not move. stree_end() after the last stree_next().
cdef void stree_iter(STreeIter *it, STree *t, const STreeFilter *filters, uint32_t n_filters) noexcept nogil
cdef bint stree_next(STreeIter *it) noexcept nogil
cdef void stree_end(STreeIter *it) noexcept nogil
