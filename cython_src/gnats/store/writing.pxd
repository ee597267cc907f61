"""Storing messages, and the limits that apply then (storeRawMsg and SkipMsgs of filestore.go)."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase

# ttl: seconds; 0 for none, negative: it never expires. check_new: refuse what is over the limits with discard new.
# mark_whole: have a start find (is_marked_whole) that it is no part of an atomic batch.
cdef int store_msg(
    StoreBase s, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
    const char *msg, uint32_t msg_n, uint64_t seq, int64_t ts, int64_t ttl, bint check_new,
    bint mark_whole,
) noexcept nogil
# n sequences from seq on (0: the next) without a message.
cdef int skip_msgs(StoreBase s, uint64_t seq, uint64_t n, int64_t now) noexcept nogil
