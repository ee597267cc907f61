"""Reserved subjects, which clients may not use freely."""
from libc.stddef cimport size_t
from libc.string cimport memcmp, strlen

from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport goes_on_from_text, starts_with_text

cdef extern from * nogil:
    """
    #define GNATS_REPLY_PREFIX "_R_."
    #define GNATS_ACK_PREFIX "$JS.ACK."
    #define GNATS_GATEWAY_PREFIX "_GR_."
    #define GNATS_GATEWAY_HASH 6
    """
    # Every response to a service import is sent to a subject that begins with this (replyPrefix).
    const char *REPLY_PREFIX "GNATS_REPLY_PREFIX"
    enum:
        REPLY_PREFIX_N "((int)sizeof(GNATS_REPLY_PREFIX) - 1)"    # its bytes
    # Of the subjects that acknowledge messages of a consumer.
    const char *ACK_PREFIX "GNATS_ACK_PREFIX"
    # Of a *mapped reply*, `_GR_.<cluster>.<server>.<reply>`: where a request that went over a gateway comes from, as
    # hashes, and the reply that the requester has given.
    const char *GATEWAY_PREFIX "GNATS_GATEWAY_PREFIX"
    enum:
        HASH_N "GNATS_GATEWAY_HASH"                                                # bytes of each hash
        CLUSTER_AT "((int)sizeof(GNATS_GATEWAY_PREFIX) - 1)"                       # where it stands,
        SERVER_AT "((int)sizeof(GNATS_GATEWAY_PREFIX) + GNATS_GATEWAY_HASH)"       # and where this one does
        MAPPED_N "((int)sizeof(GNATS_GATEWAY_PREFIX) + 2 * GNATS_GATEWAY_HASH + 1)"  # bytes before the reply


cdef inline bint has_prefix(const Slice *s, const char *prefix) noexcept nogil:
    """Return whether `s` begins with this literal and goes on behind it."""
    return goes_on_from_text(s.p, s.n, prefix)


cdef inline bint is_service_reply(const char *p, size_t n) noexcept nogil:
    """Return whether this is a subject for responses to a service import (isServiceReply)."""
    return starts_with_text(p, n, REPLY_PREFIX)


cdef inline bint is_gateway_reply(const Slice *s) noexcept nogil:
    return has_prefix(s, GATEWAY_PREFIX) or has_prefix(s, b"$GR.")


cdef inline bint is_mapped_reply(const Slice *s) noexcept nogil:
    """Return whether this is a mapped reply, with a reply behind its prefix (isGWRoutedReply)."""
    return s.n > MAPPED_N and memcmp(s.p, GATEWAY_PREFIX, strlen(GATEWAY_PREFIX)) == 0


cdef inline Slice plain_reply(const Slice *reply) noexcept nogil:
    """Return a reply as the requester has given it, and as clients see it."""
    cdef Slice plain = reply[0]
    if is_mapped_reply(reply):
        plain.p += MAPPED_N
        plain.n -= MAPPED_N
    return plain


cdef inline bint is_raft_subject(const Slice *s) noexcept nogil:
    """Return whether this is a subject of Raft groups."""
    return starts_with_text(s.p, s.n, b"$NRG.")


cdef inline bint is_jetstream_ack(const Slice *reply) noexcept nogil:
    return has_prefix(reply, ACK_PREFIX)
