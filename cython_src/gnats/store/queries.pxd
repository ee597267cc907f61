"""Queries about stored messages: counts, last sequences, times. The caller holds the store's lock."""
from libc.stdint cimport int64_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.index.filter cimport Filter
from gnats.store.index.stree cimport STreeIter

# Count the messages at or after seq that f matches; last_per_subject: only the last one of each subject.
cdef uint64_t num_pending(StoreBase s, uint64_t seq, const Filter *f, bint last_per_subject) noexcept nogil
# Set *n to that count, unless this takes a look at messages, or at more than FEW_SUBJECTS subjects: then return False.
cdef bint pending_known(StoreBase s, uint64_t seq, const Filter *f, uint64_t *n) noexcept nogil
# Count the messages from at[0] to `last` that f matches, among the next `most`. at[0] becomes the sequence to go on
# at; last + 1: done.
cdef uint64_t count_some(
    StoreBase s, const Filter *f, uint64_t *at, uint64_t last, int64_t most) noexcept nogil
# For the next three see the methods of MsgStore (gnats.store.store).
cdef uint64_t filtered_state(
    StoreBase s, uint64_t seq, const Filter *f, uint64_t *first, uint64_t *last) noexcept nogil
cdef int64_t multi_last_seqs(
    StoreBase s, const Filter *f, uint64_t most_seq, int64_t most, uint64_t **seqs) noexcept nogil
cdef uint64_t seq_from_time(StoreBase s, int64_t ts) noexcept nogil
# Begin to iterate over the subjects that f matches; see stree_iter().
cdef void iter_filter(STreeIter *it, StoreBase s, const Filter *f) noexcept nogil
