"""Storing messages, and the limits that apply when a message is stored (storeRawMsg and SkipMsgs of filestore.go).

The caller holds the store's lock. The functions return a StoreError.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase

# Store a message; the record waits in memory for a flush. seq: the next sequence, or 0. ts: ns since 1970. ttl:
# seconds; 0: none, negative: it never expires. check_new: with discard new, refuse a message over a limit. mark_whole:
# add a record from which the next start sees that the message is no part of an atomic batch (is_marked_whole).
cdef int store_msg(
    StoreBase s, const char *subject, uint32_t subject_n, const char *hdr, uint32_t hdr_n,
    const char *msg, uint32_t msg_n, uint64_t seq, int64_t ts, int64_t ttl, bint check_new,
    bint mark_whole,
) noexcept nogil
# Leave n sequences without a message. seq: the next sequence, or 0. now: ns since 1970, for a store without messages.
cdef int skip_msgs(StoreBase s, uint64_t seq, uint64_t n, int64_t now) noexcept nogil
