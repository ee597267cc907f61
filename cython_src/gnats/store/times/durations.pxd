"""Parsing of numbers and durations in headers (time.ParseDuration of Go, parseMessageTTL of stream.go).

Functions that return bint return False for invalid text.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint64_t

# Parse a number. -1: it is none. Too many digits wrap around, as in nats-server.
cdef int64_t parse_int64(const char *p, size_t n) noexcept nogil
cdef bint parse_uint64(const char *p, size_t n, uint64_t *out) noexcept nogil
# Parse a Go duration to ns.
cdef bint parse_duration(const char *p, size_t n, int64_t *out) noexcept nogil
# Parse a Nats-TTL to seconds; -1: never. Invalid: *out is 0.
cdef bint parse_message_ttl(const char *p, size_t n, int64_t *out) noexcept nogil
