"""Syncing the files of a store (syncBlocks of filestore.go)."""
from gnats.store.base cimport StoreBase

# Sync all files that were written. 0 or -errno (frozen). Call it WITHOUT the store's lock; threads take turns.
cdef int sync_blocks(StoreBase s) noexcept nogil
