"""A set of subjects, to find out whether one of them overlaps with another one, in the same set or in a second set.

Two subjects are compared only as far as all tokens before agree: a thousand subjects cost about a thousand comparisons,
not a million. One thread at a time may use a set, any thread; comparisons run without the GIL.
"""
from libc.stdint cimport uint32_t


# A token of some subjects, below the tokens before it.
cdef struct TrieNode:
    TrieNode **buckets     # literal tokens that come next, in `cap` chained buckets: a power of two, or 0
    TrieNode *star         # the next token `*`; NULL: none
    TrieNode *chain        # next in the same bucket
    uint32_t cap
    uint32_t nkids         # literal tokens that come next
    uint32_t users         # subjects that end here or further down
    uint32_t ends          # subjects that end here
    uint32_t tails         # subjects that go on with `>` here
    uint32_t hash
    uint32_t n             # bytes of the token
    char token[1]


cdef class SubjectTrie:
    cdef object __weakref__
    cdef TrieNode *root
    cdef uint32_t stopped  # stop() was called; atomic

    cdef int insert(self, const char *p, size_t n) noexcept nogil      # -1, and nothing changes, when out of memory
    cdef void remove(self, const char *p, size_t n) noexcept nogil     # nothing when it is not there
