"""Loading messages. What a StoreMsg points to stays valid until the calling thread's next quiescent point."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase, StoreMsg
from gnats.store.filter cimport Filter

cdef enum:
    FEW_SUBJECTS = 4096    # that may be asked where it must not take long

# All return STORE_OK, or what is said at StoreError.
cdef int load(StoreBase s, uint64_t seq, StoreMsg *out) noexcept nogil
# The first message at or after start; *skip (if not NULL) is its sequence, or last_seq when there is none.
cdef int load_next(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
# The last message at or before start; *skip is its sequence, or first_seq when there is none.
cdef int load_prev(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
# The same, looking at no more than left[0] messages, which it counts down: STORE_AGAIN when one may still be found, and
# skip[0] is the last sequence that was looked at.
cdef int search_next(
    StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip, int64_t *left) noexcept nogil
cdef int search_prev(
    StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip, int64_t *left) noexcept nogil
# Is there a mark behind the message of a sequence that it is no part of an atomic batch?
cdef bint is_marked_whole(StoreBase s, uint64_t seq) noexcept nogil
# The last message of a subject, which may have wildcards.
cdef int load_last(StoreBase s, const char *subject, uint32_t n, StoreMsg *out) noexcept nogil
