"""Text as the server's messages quote it."""
from libc.stddef cimport size_t

# Write "p[:n]" as Go's %q words it at out, quote_room(n) characters at most; the end of it.
cdef char *quote(char *out, const char *p, size_t n) noexcept nogil
# A JSON string as encoding/json writes it, quotes included; at most 6 * n + 2 bytes.
cdef size_t put_json_string(char *out, const char *p, size_t n) noexcept nogil
# Bytes of the well-formed UTF-8 sequence at p, of which there are n; 0 when there is none.
cdef size_t utf8_width(const char *p, size_t n) noexcept nogil


cdef inline size_t quote_room(size_t n) noexcept nogil:
    return 4 * n + 2
