"""Questions about what is stored: counts, lasts, times."""
from libc.stdint cimport int64_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.filter cimport Filter
from gnats.store.stree cimport STreeIter

cdef uint64_t num_pending(StoreBase s, uint64_t seq, const Filter *f, bint last_per_subject) noexcept nogil
# num_pending of a filter, where that is known without looking at messages, or at more than a few subjects.
cdef bint pending_known(StoreBase s, uint64_t seq, const Filter *f, uint64_t *n) noexcept nogil
# Messages from at[0] to `last` that a filter takes, looking at `most` of them: at[0] is where to go on, behind `last`
# when all have been looked at.
cdef uint64_t count_some(
    StoreBase s, const Filter *f, uint64_t *at, uint64_t last, int64_t most) noexcept nogil
cdef uint64_t filtered_state(
    StoreBase s, uint64_t seq, const Filter *f, uint64_t *first, uint64_t *last) noexcept nogil
cdef int64_t multi_last_seqs(
    StoreBase s, const Filter *f, uint64_t most_seq, int64_t most, uint64_t **seqs) noexcept nogil
cdef uint64_t seq_from_time(StoreBase s, int64_t ts) noexcept nogil
# An iterator over the subjects that the filter takes; see gnats.store.stree.
cdef void iter_filter(STreeIter *it, StoreBase s, const Filter *f) noexcept nogil
