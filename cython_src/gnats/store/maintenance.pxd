"""Periodic work on a store: write state files, rewrite sparse blocks, unload idle blocks (filestore.go).

These functions take the store's lock themselves, while they copy memory, and write files without it. Only one thread
at a time may run them on a store.
"""
from gnats.store.base cimport StoreBase

# Write index.db, thw.db and sched.db if anything changed. 0 or an errno (the store is not frozen); 1: put off, because
# the store has over a million subjects or deletions and `force` is not set.
cdef int write_state(StoreBase s, bint force) noexcept nogil
# Rewrite the next block that is due: more than half of it is deleted, or it is to be compressed. False: none was
# rewritten.
cdef bint rewrite_next(StoreBase s) noexcept nogil
# Unload the blocks that were not used during the last `ticks` calls.
cdef void unload_idle(StoreBase s, unsigned int ticks) noexcept nogil
# Return whether the store has nothing left to do: all files are synced, index.db is up to date, no block waits for one
# of the functions above. False for a store that is frozen or closed.
cdef bint rests(StoreBase s) noexcept nogil
