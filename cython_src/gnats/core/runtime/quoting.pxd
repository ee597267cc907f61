"""Quote text for the server's messages."""
from libc.stddef cimport size_t

# Write p[:n] quoted as Go's %q does, at most quote_room(n) bytes. Return the end.
cdef char *quote(char *out, const char *p, size_t n) noexcept nogil
# Write a JSON string as encoding/json does, quotes included, at most 6 * n + 2 bytes. Return the number of bytes.
cdef size_t put_json_string(char *out, const char *p, size_t n) noexcept nogil
# Return the length of the well-formed UTF-8 sequence at p[:n], 0 when there is none.
cdef size_t utf8_width(const char *p, size_t n) noexcept nogil


cdef inline size_t quote_room(size_t n) noexcept nogil:
    return 4 * n + 2
