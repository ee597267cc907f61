"""Removing messages: one by one, by limits, from the front, by subject (filestore.go).

The caller holds the store's lock. The functions return a StoreError.
"""
from libc.stdint cimport uint32_t, uint64_t

from gnats.store.base cimport StoreBase
from gnats.store.block cimport MsgBlock

cdef enum:
    PURGE_AT_ONCE = 4096       # messages that one call of purge_some() looks at


# A purge in parts.
cdef struct Purge:
    bint begun                 # False before the first call of purge_some()
    uint64_t purged            # messages removed by all calls
    uint64_t most              # messages to remove in all
    uint64_t stop              # remove no message at or after this sequence
    uint64_t at                # the sequence to go on at
    uint32_t first_block, last_block    # indices of the blocks that may have messages to remove


# Remove a message. STORE_NOT_FOUND, STORE_EOF: there is none. by_limit: write no tombstone, since the limit would
# remove the message again at the next start. erase: overwrite the record in the file.
cdef int remove_msg(StoreBase s, uint64_t seq, bint erase, bint by_limit) noexcept nogil
# Do remove_msg() for a message whose block is known.
cdef int remove_from(StoreBase s, MsgBlock *b, uint64_t seq, bint erase, bint by_limit) noexcept nogil

# Remove the first messages until no more than the limit are left; with discard new the first two do nothing.
cdef int enforce_msgs(StoreBase s) noexcept nogil
cdef int enforce_bytes(StoreBase s) noexcept nogil
cdef int enforce_per_subject(StoreBase s) noexcept nogil      # all subjects: after recovery, or a new limit

# *purged becomes the number of messages removed.
# Remove all messages; the next sequence is `first` if that is greater than last_seq + 1.
cdef int purge(StoreBase s, uint64_t first, uint64_t *purged) noexcept nogil
# Remove messages of a subject (wildcards allowed; n 0: all), those before seq (0: any), all but the last `keep`.
cdef int purge_ex(
    StoreBase s, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, uint64_t *purged) noexcept nogil
# One part of purge_ex(), which returns STORE_AGAIN until all is done; the caller may release the lock between parts.
# Messages stored after the first part stay. Set p.begun to False before it.
cdef int purge_some(
    StoreBase s, const char *subject, uint32_t n, uint64_t seq, uint64_t keep, Purge *p) noexcept nogil
cdef int compact(StoreBase s, uint64_t seq, uint64_t *purged) noexcept nogil          # removes all before seq
cdef int purge_block(StoreBase s, MsgBlock *b) noexcept nogil                         # removes a block's messages
# Drop blocks without messages from the front, up to the first block with messages.
cdef void drop_empty(StoreBase s) noexcept nogil
