"""The memory of block bodies: mappings of files, and anonymous memory for records without a file or in decoded form.

Reading a page of a mapping that the kernel cannot read (an I/O error, a truncated file) raises SIGBUS in the reading
thread. The handler of this module maps a page of zeroes there and counts a hit for the region, so the thread goes on.
Before a store gives out a pointer, it touches the record's pages and, where there were hits, compares the checksum. A
SIGBUS elsewhere goes to the handler that was installed before. Readers pay nothing for this.

A region that readers may hold pointers into is retired (core.runtime.quiesce), never unmapped at once. Any thread may
call these functions; they take the lock of the table of mappings (a leaf).
"""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t


cdef struct Region:
    char *base
    size_t size
    Watch *watch      # of a mapped file; NULL: anonymous memory


cdef struct Watch:
    # An entry of the table that the handler searches. Entries are reused, never freed.
    # start and end: atomic; a thread with the table's lock writes, the handler reads.
    uint64_t start    # address; 0: the entry is free
    uint64_t end
    uint64_t hits     # atomic; pages that could not be read: the handler counts, stores read
    Watch *next_free  # under the table's lock


# Make a region of at least `size` bytes. NULL: errno says why.
cdef Region *region_map(int fd, size_t size) noexcept nogil         # read-only, shared; may be longer than the file
cdef Region *region_memory(size_t size) noexcept nogil              # zeroes
# Return the number of pages of a region that could not be read since it was made.
cdef uint64_t region_hits(const Region *r) noexcept nogil
# Free a region when no reader can hold a pointer into it any more; NULL does nothing.
cdef void region_retire(Region *r) noexcept nogil
# Free a region at once: no other thread may hold a pointer into it.
cdef void region_free(Region *r) noexcept nogil
# Return the number of pages of all stores that could not be read since the process began.
cdef uint64_t region_faults() noexcept nogil
