"""Numbers and durations as clients write them into headers (time.ParseDuration, parseMessageTTL of stream.go)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

# -1 for what is no number; too many digits wrap around, as in nats-server
cdef int64_t parse_int64(const char *p, size_t n) noexcept nogil
cdef bint parse_uint64(const char *p, size_t n, uint64_t *out) noexcept nogil
# time.ParseDuration, ns
cdef bint parse_duration(const char *p, size_t n, int64_t *out) noexcept nogil
# Of a Nats-TTL: seconds, -1 for never. False for an invalid one, out is 0 then.
cdef bint parse_message_ttl(const char *p, size_t n, int64_t *out) noexcept nogil
