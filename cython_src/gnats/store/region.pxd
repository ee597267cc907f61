"""Memory that blocks live in: mappings of files, and anonymous memory for what has no file or must be decoded.

A page of a file that cannot be read (an I/O error, a file cut short by somebody else) raises SIGBUS in whoever reads
it. The handler of this module puts a page of zeroes there and counts a hit for the region, so the reader goes on:
zeroes are no valid record, a store that finds one looks at the hits and reports the damage. A SIGBUS anywhere else
goes to the handler that was there before. Nothing is paid for this while reading.

A region that readers may still hold pointers into is retired (core.quiesce), never unmapped at once.
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t


cdef struct Region:
    char *base
    size_t size
    Watch *watch      # of mappings of files, else NULL


cdef struct Watch:
    # an entry of the table that the handler searches; entries are never freed, only used again
    uint64_t start    # atomic; 0: free
    uint64_t end      # atomic
    uint64_t hits     # atomic; pages that could not be read
    Watch *next_free  # under the table's lock


# NULL: no memory, errno says why
cdef Region *region_map(int fd, size_t size) noexcept nogil         # read-only, shared; may be longer than the file
cdef Region *region_memory(size_t size) noexcept nogil
cdef uint64_t region_hits(const Region *r) noexcept nogil
cdef void region_retire(Region *r) noexcept nogil                   # NULL is fine
cdef void region_free(Region *r) noexcept nogil                     # nobody can be reading it
# Pages that could not be read, of all stores since the process began.
cdef uint64_t region_faults() noexcept nogil
