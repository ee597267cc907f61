"""The state of a store in files beside its blocks: index.db, thw.db for TTLs, sched.db for schedules
(writeFullState and recoverFullState of filestore.go).

An index names the last record of the last block at its time. At the next start the records after that one are read
and added. A change of records in place, or the removal of a block, makes the index useless: `invalidate` removes it
first, or the start finds that a block of the index is missing.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gnats.store.base cimport StoreBase


# The content of a file, malloc'd; `at` is NULL where no such file is to be written.
cdef struct StateFile:
    uint8_t *at
    size_t n


cdef struct StateFiles:
    StateFile index, ttls, schedules


# Encode the state as it is now. Needs the store's lock. STORE_OK or STORE_NO_MEMORY; then state_free().
cdef int encode_state(StoreBase s, StateFiles *out) noexcept nogil
cdef void state_free(StateFiles *files) noexcept nogil
# Remove the state files, before a change that they would not fit. Needs the store's lock.
cdef void invalidate(StoreBase s) noexcept nogil

# At a start; `indices` are those of the block files, sorted; warn(str) is called for each problem. Fill blocks and
# subjects from index.db. Return an offset in the last block of the index: the records from there on, and all later
# blocks, are not in the index. -1: nothing is filled, all blocks must be scanned. Even then s.last_seq is that of a
# valid but outdated index.
cdef int64_t load_index(StoreBase s, list indices, object warn) except -2
# Fill the wheel from thw.db. Return the first sequence that the file does not cover (0: no file, or a damaged one).
cdef uint64_t load_ttls(StoreBase s, object warn) except *
# The same for the schedules and sched.db.
cdef uint64_t load_schedules(StoreBase s, object warn) except *
