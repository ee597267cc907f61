"""Removing messages (filestore.go): one by one, by limits, from the front, by subject."""
from libc.stdint cimport uint32_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.block cimport MsgBlock

cdef enum:
    PURGE_AT_ONCE = 4096       # messages that one part of a purge looks at


# A purge that goes on.
cdef struct Purge:
    bint begun
    uint64_t purged            # messages that went so far
    uint64_t most              # that may go
    uint64_t stop              # from here on they stay
    uint64_t at                # where it goes on
    uint32_t first_block, last_block    # with such messages


# STORE_OK, STORE_NOT_FOUND, STORE_EOF, or a StoreError. Removed by a limit, a message gets no tombstone: the limit
# removes it again at the next start. erase: its bytes are overwritten.
cdef int remove_msg(StoreBase s, uint64_t seq, bint erase, bint by_limit) noexcept nogil
cdef int remove_from(StoreBase s, MsgBlock *b, uint64_t seq, bint erase, bint by_limit) noexcept nogil

cdef int enforce_msgs(StoreBase s) noexcept nogil
cdef int enforce_bytes(StoreBase s) noexcept nogil
cdef int enforce_per_subject(StoreBase s) noexcept nogil      # of all subjects: after recovery, or a new limit

# Each returns a StoreError, and how many messages went.
cdef int purge(StoreBase s, uint64_t first, uint64_t *purged) noexcept nogil    # first: the next first_seq, if larger
cdef int purge_ex(
    StoreBase s, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, uint64_t *purged) noexcept nogil
# The same in parts, between which the lock may be let go of: STORE_AGAIN when there is more to do. What is stored
# meanwhile stays. p.begun is False before the first.
cdef int purge_some(
    StoreBase s, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, Purge *p) noexcept nogil
cdef int compact(StoreBase s, uint64_t seq, uint64_t *purged) noexcept nogil          # all before seq
cdef int purge_block(StoreBase s, MsgBlock *b) noexcept nogil                         # a whole block, subjects counted
# Drops the blocks that are empty, and needed for no tombstone.
cdef void drop_empty(StoreBase s) noexcept nogil
