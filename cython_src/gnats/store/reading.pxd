"""Loading messages (filestore.go).

The caller holds the store's lock. The pointers in a StoreMsg stay valid until the calling thread's next quiescent point
(gnats.store.store). The functions that return int return a StoreError.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase, StoreMsg
from gnats.store.index.filter cimport Filter

cdef enum:
    FEW_SUBJECTS = 4096    # a call that must be short goes through the subjects of a store with no more of them

cdef int load(StoreBase s, uint64_t seq, StoreMsg *out) noexcept nogil
# Load the first message at or after start that f (NULL: every subject) matches; STORE_EOF: there is none. *skip (may
# be NULL) becomes its sequence; last_seq: there is none. STORE_UNREADABLE: no match up to *skip, go on after it later.
cdef int load_next(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
# Load the last message at or before start that f matches; STORE_EOF: there is none. *skip becomes its sequence, or
# first_seq where none was found.
cdef int load_prev(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
# Do load_next() and load_prev(), but look at no more than left[0] messages, and count that down. STORE_AGAIN: a match
# may still follow; skip[0], which must not be NULL, is the last sequence that was looked at.
cdef int search_next(
    StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip, int64_t *left) noexcept nogil
cdef int search_prev(
    StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip, int64_t *left) noexcept nogil
# Return whether a record after the message of seq says that it is no part of an atomic batch (is_whole_mark).
cdef bint is_marked_whole(StoreBase s, uint64_t seq) noexcept nogil
# Load the last message of a subject, which may have wildcards. STORE_NOT_FOUND: there is none.
cdef int load_last(StoreBase s, const char *subject, uint32_t n, StoreMsg *out) noexcept nogil
