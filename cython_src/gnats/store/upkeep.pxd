"""What a store does now and then, beside its work: state files, sparse blocks, blocks that nobody reads.

These functions take the lock themselves, for as long as memory is copied; files are written without it. One thread at
a time.
"""
from gnats.store.base cimport StoreBase

# Writes index.db, thw.db and sched.db if something changed; 0 or an errno (the store goes on without them). Unless
# forced, not for stores with so many subjects or deletions that it would take long (1: put off).
cdef int write_state(StoreBase s, bint force) noexcept nogil
# Rewrites the next block that is due: half of it is deleted, or it is to be compressed. False: none is.
cdef bint rewrite_next(StoreBase s) noexcept nogil
# Blocks not used since `ticks` calls give up body and slots.
cdef void unload_idle(StoreBase s, unsigned int ticks) noexcept nogil
# Nothing is written that is not durable, nothing has changed since index.db was written, and no block waits for one of
# the above. False, too, for a store that has failed or is closed.
cdef bint rests(StoreBase s) noexcept nogil
