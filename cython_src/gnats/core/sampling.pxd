"""Does the header of a request ask for a measurement? The formats of Jaeger, Zipkin and the W3C (shouldSample)."""
from libc.stddef cimport size_t


# `header` from its first line to the empty one.
cdef bint sampled_by_header(const char *header, size_t n) noexcept nogil
