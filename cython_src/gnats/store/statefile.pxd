"""The state of a store in files beside its blocks: index.db, thw.db for what expires, sched.db for schedules
(writeFullState and recoverFullState of filestore.go).

An index is good for a store whose last block then ended with a certain record. What was appended behind that record is
read and added. Anything that changes records in place, or takes blocks away, makes the index useless: it is removed
before (`invalidate`), or a block that it knows is missing.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t

from gnats.store.base cimport StoreBase


# The files' contents, malloc'd; `at` is NULL for a file that there is not.
cdef struct StateFile:
    uint8_t *at
    size_t n


cdef struct StateFiles:
    StateFile index, ttls, schedules


# As of now, encoded with the lock held: 0 or STORE_NO_MEMORY.
cdef int encode_state(StoreBase s, StateFiles *out) noexcept nogil
cdef void state_free(StateFiles *files) noexcept nogil
# Replaces a file in msgs/; needs no lock. 0 or an errno.
cdef int put_file(int dirfd, const char *name, const uint8_t *data, size_t n) noexcept nogil
cdef void invalidate(StoreBase s) noexcept nogil

# Fills blocks and subjects from index.db. Where in the last of them the records begin that it does not know; those of
# later blocks are not known either. -1, and nothing is filled: all must be scanned. s.last_seq is what the index says.
cdef int64_t load_index(StoreBase s, list indices, object warn) except -2
# Fills the wheel from thw.db: messages from this sequence on are not in it.
cdef uint64_t load_ttls(StoreBase s, object warn) except *
# Those of sched.db, and the same.
cdef uint64_t load_schedules(StoreBase s, object warn) except *
