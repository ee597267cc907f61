"""Ask the processor for memory that is read soon; any address may be given, also NULL."""

cdef extern from * nogil:
    void prefetch "__builtin_prefetch"(const void *p)
