"""Bytes in memory that belongs to another object."""
from libc.stddef cimport size_t


cdef struct Slice:
    char *p
    size_t n
