"""The S2 layer between a connection and what is below it, TLS or the socket: a stream of chunks in each direction.

The control plane makes the layer, and the owner puts it into the chain when the peers have agreed to compress. The
identifier is written once, since a reader needs it once; each flush ends a chunk.
"""
from libc.stddef cimport size_t

from gnats.core.net.connection cimport Connection
from gnats.core.net.transport cimport Transport


# Make a layer of `c`, which frees it. NULL without memory. Control loop only.
#
# With `waits`, write nothing before the peer has begun: a server that parses the INFO by which it learns of compression
# takes what it has read behind that for plain text. The peer may still answer in plain text, with an -ERR.
cdef Transport *s2_make(Connection c, bint waits, bint uncompressed) noexcept
# -- for the owner --
# Begin to compress: what is queued leaves as it is. The n bytes at `kept` were read; decode them. Without
# memory the connection closes.
cdef void s2_begin(Connection c, Transport *layer, const char *kept, size_t n) noexcept nogil
# Write chunks of uncompressed data from now on, or compressed ones.
cdef void s2_set_uncompressed(Transport *layer, bint uncompressed) noexcept nogil
