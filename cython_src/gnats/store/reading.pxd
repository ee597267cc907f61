"""Loading messages. What a StoreMsg points to stays valid until the calling thread's next quiescent point."""
from libc.stdint cimport uint32_t, uint64_t

from gnats.store.base cimport StoreBase, StoreMsg
from gnats.store.filter cimport Filter

# All return STORE_OK, or what is said at StoreError.
cdef int load(StoreBase s, uint64_t seq, StoreMsg *out) noexcept nogil
# The first message at or after start; *skip (if not NULL) is its sequence, or last_seq when there is none.
cdef int load_next(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
# The last message at or before start; *skip is its sequence, or first_seq when there is none.
cdef int load_prev(StoreBase s, const Filter *f, uint64_t start, StoreMsg *out, uint64_t *skip) noexcept nogil
# The last message of a subject, which may have wildcards.
cdef int load_last(StoreBase s, const char *subject, uint32_t n, StoreMsg *out) noexcept nogil
