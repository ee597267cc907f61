"""Many subjects at once: does one of them overlap with another, in the set or in another set?

A pair of subjects costs a comparison only where all tokens before agree, so that a thousand subjects are compared in the
time of a thousand, not of a million. Used by one thread at a time; which one does not matter, and the comparisons run
without the GIL.
"""
from libc.stdint cimport uint32_t


# A token of some subjects, below those before it.
cdef struct TrieNode:
    TrieNode **buckets     # literal tokens that come next, chained; `cap` of them, a power of two or 0
    TrieNode *star         # the next token is `*`
    TrieNode *chain
    uint32_t cap
    uint32_t nkids
    uint32_t users         # subjects that end here or further down
    uint32_t ends          # subjects that end here
    uint32_t tails         # subjects that go on with `>`; what is behind it does not count
    uint32_t hash
    uint32_t n             # bytes of the token
    char token[1]


cdef class SubjectTrie:
    cdef object __weakref__
    cdef TrieNode *root
    cdef uint32_t stopped  # atomic

    cdef int insert(self, const char *p, size_t n) noexcept nogil      # -1: out of memory, and nothing has changed
    cdef void remove(self, const char *p, size_t n) noexcept nogil     # one that is there
