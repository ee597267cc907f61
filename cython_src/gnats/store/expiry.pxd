"""What expires: messages older than max_age, and those with a TTL of their own."""
from libc.stdint cimport int64_t, uint32_t, uint64_t

from gnats.store.base cimport StoreBase

# A message with a TTL (seconds) was stored; one with headers was removed.
cdef void ttl_stored(StoreBase s, uint64_t seq, int64_t ts, int64_t ttl) noexcept nogil
cdef void ttl_removed(StoreBase s, uint64_t seq) noexcept nogil
cdef void ttl_clear(StoreBase s) noexcept nogil
# Finds the TTLs of the messages from a sequence on.
cdef void ttl_scan(StoreBase s, uint64_t start) noexcept nogil
# Nats-TTL of a message's headers in seconds; 0: none, or no valid one; -1: never.
cdef int64_t header_ttl(const char *hdr, uint32_t n) noexcept nogil

cdef int64_t next_expiry(StoreBase s) noexcept nogil
# At most n (32 at least) sequences that are due. Those with a TTL of their own are not told again, unless ttl_again.
cdef uint32_t expired(StoreBase s, int64_t now, uint64_t *seqs, uint32_t n) noexcept nogil
cdef void ttl_again(StoreBase s, uint64_t seq, int64_t when) noexcept nogil
