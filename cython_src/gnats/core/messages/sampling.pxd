"""Does a request's header ask for a measurement? In the formats of Jaeger, Zipkin and the W3C (shouldSample)."""
from libc.stddef cimport size_t


# `header` is a whole block, from its first line to the empty one.
cdef bint sampled_by_header(const char *header, size_t n) noexcept nogil
