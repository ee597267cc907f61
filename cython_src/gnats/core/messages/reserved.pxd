"""Reserved subjects, which clients may not use freely."""
from libc.string cimport memcmp, strlen

from gnats.core.runtime.slice cimport Slice


cdef inline bint has_prefix(const Slice *s, const char *prefix) noexcept nogil:
    """Return whether `s` begins with this prefix and goes on behind it."""
    return s.n > strlen(prefix) and memcmp(s.p, prefix, strlen(prefix)) == 0


cdef inline bint is_gateway_reply(const Slice *s) noexcept nogil:
    return has_prefix(s, b"_GR_.") or has_prefix(s, b"$GR.")


cdef inline bint is_raft_subject(const Slice *s) noexcept nogil:
    """Return whether this is a subject of Raft groups."""
    return s.n >= strlen(b"$NRG.") and memcmp(s.p, b"$NRG.", strlen(b"$NRG.")) == 0


cdef inline bint is_jetstream_ack(const Slice *reply) noexcept nogil:
    return has_prefix(reply, b"$JS.ACK.")
