"""Decide whether a request's header asks for a measurement, as Jaeger, Zipkin or the W3C write it (shouldSample)."""
from libc.stddef cimport size_t


# `header` is a whole block, from its first line to the empty one.
cdef bint sampled_by_header(const char *header, size_t n) noexcept nogil
