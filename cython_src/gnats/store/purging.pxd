"""Removing all messages at once, and those behind a sequence (filestore.go)."""
from libc.stdint cimport uint64_t

from gnats.store.base cimport StoreBase

# No message stays. The sequence after the last is next, or `first` if that is larger; with `reset` it is 1. The files
# are put aside (`__msgs__`), for remove_purged.
cdef int purge_all(StoreBase s, uint64_t first, bint reset) noexcept nogil
# All behind seq goes, and seq becomes the last sequence; the count of messages that went.
cdef int truncate(StoreBase s, uint64_t seq, uint64_t *purged) noexcept nogil
# Removes what a purge has put aside; needs no lock. True if there was something.
cdef bint remove_purged(int storefd) noexcept nogil
