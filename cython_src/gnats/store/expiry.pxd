"""Expiry: messages older than max_age, and messages with a TTL (Nats-TTL). The caller holds the store's lock."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase

# Note in the wheel that a message with a TTL (seconds, above 0) was stored; that a message with headers was removed;
# that all messages were. ts: ns since 1970. A message that the wheel has no memory for is found later: see `ttls_from`.
cdef void ttl_stored(StoreBase s, uint64_t seq, int64_t ts, int64_t ttl) noexcept nogil
cdef void ttl_removed(StoreBase s, uint64_t seq) noexcept nogil
cdef void ttl_clear(StoreBase s) noexcept nogil
# Find the TTLs of the messages from a sequence on, by their headers. End early, with `ttls_from` set, when there is
# no memory.
cdef void ttl_scan(StoreBase s, uint64_t start) noexcept nogil
# Return the Nats-TTL of a message's headers in seconds; 0: none, or an invalid one; -1: never.
cdef int64_t header_ttl(const char *hdr, uint32_t n) noexcept nogil

# Return the first sequence with a TTL that `ttls` does not cover. thw.db has it, for the next start to search from.
cdef uint64_t ttls_high(StoreBase s) noexcept nogil

# Return when a message expires next (ns since 1970, possibly early); INT64_MAX: none will. While messages are missing
# in the wheel, return when to call expired(), which searches for them.
cdef int64_t next_expiry(StoreBase s) noexcept nogil
# Fill seqs with at most n (n >= 32) sequences that have expired at `now`. Return their number. A message with a TTL
# leaves the wheel: it is not returned again, unless expire_again() puts it back.
cdef uint32_t expired(StoreBase s, int64_t now, uint64_t *seqs, uint32_t n) noexcept nogil
# Return whether the first message of a subject has expired at `now`.
cdef bint first_expired(StoreBase s, const char *subject, uint32_t n, int64_t now) noexcept nogil
# Have expired() return a sequence that it has returned once more, at `when`. Max_age does not return it again.
cdef void expire_again(StoreBase s, const uint64_t *seqs, uint32_t n, int64_t when) noexcept nogil
