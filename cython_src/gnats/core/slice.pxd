"""Bytes of somebody else's memory."""
from libc.stddef cimport size_t


cdef struct Slice:
    char *p
    size_t n
