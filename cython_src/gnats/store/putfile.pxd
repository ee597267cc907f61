"""Whole small files: written beside the one that they replace, which a rename does in one step."""
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

cdef enum:
    NAME_MORE = 5              # bytes of ".tmp" and the end
    LONGEST_NAME = 64 - NAME_MORE

# Write a file anew; with `synced` it is durable, but its name. 0 or an errno: then there is none.
cdef int write_file(int dirfd, const char *name, const uint8_t *data, size_t n, bint synced) noexcept nogil
# Replace a file, by `name`.tmp; with `durably`, a crash leaves the old one or the new one, and after this function the
# new one. 0 or an errno. A name has at most LONGEST_NAME bytes.
cdef int put_file(int dirfd, const char *name, const uint8_t *data, size_t n, bint durably) noexcept nogil
# Give a file another name, durably. 0 or an errno.
cdef int rename_file(int dirfd, const char *name, const char *new) noexcept nogil
cdef int sync_dir(int dirfd) noexcept nogil
# Read a whole file; the caller frees *data. 0 or an errno.
cdef int read_whole(int dirfd, const char *name, char **data, size_t *n) noexcept nogil
# 0 or an errno; it is no failure if there is none.
cdef int remove_file(int dirfd, const char *name) noexcept nogil
