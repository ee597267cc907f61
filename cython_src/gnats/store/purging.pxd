"""Removing all messages at once, and all messages after a sequence (purge and Truncate of filestore.go).

The caller holds the store's lock, except for remove_purged(). Functions that return int return a StoreError.
"""
from libc.stdint cimport uint64_t

from gnats.store.base cimport StoreBase

# Remove all messages. The next sequence is last_seq + 1, or `first` if that is greater; with `reset` it is 1. Moves
# the block files to `__msgs__`, for remove_purged().
cdef int purge_all(StoreBase s, uint64_t first, bint reset) noexcept nogil
# Remove all messages after seq, which becomes the last sequence. *purged becomes their number.
cdef int truncate(StoreBase s, uint64_t seq, uint64_t *purged) noexcept nogil
# Remove `__msgs__` from the directory of a stream (-1: does nothing); needs no lock. True if it was there.
cdef bint remove_purged(int storefd) noexcept nogil
