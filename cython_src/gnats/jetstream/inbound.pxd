"""A message on its way into a stream."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.slice cimport Slice
from gnats.core.transform cimport transform_apply, transform_matches
from gnats.jetstream.barrier cimport Local
from gnats.jetstream.headers cimport MsgHeaders
from gnats.jetstream.streamcore cimport StreamCore
from gnats.store.record cimport record_size

cdef enum:
    SUBJECT_ROOM = 256   # bytes of a subject that need no memory but the stack's
    MAX_HEADER = 65535


# A message in hand. `hdr` is in memory of ours when `owned` is, else in the poller's buffer.
cdef struct Inbound:
    Slice subject
    Slice published      # the subject before the stream's transform
    Slice reply          # n is 0 without one
    char *hdr
    size_t hdr_n
    const char *msg
    size_t n
    # to be freed by inbound_free(); NULL for none
    char *owned          # the header
    char *counted        # the payload that an increment made; `value` is the number in it
    char *renamed        # the subject
    Slice value
    uint64_t seq         # of a mirror's message: its sequence, which must be the next one, and ts; else 0
    int64_t ts
    uint8_t sourced      # the server's own, or of another stream: stored as it is
    MsgHeaders h


cdef inline void inbound_init(Inbound *m) noexcept nogil:
    """Its subject, header and payload are the caller's to set."""
    m.reply.p = NULL
    m.reply.n = 0
    m.owned = m.counted = m.renamed = NULL
    m.value.p = NULL
    m.value.n = 0
    m.seq = 0
    m.ts = 0
    m.sourced = False
    m.h.found = 0


cdef inline void inbound_free(Inbound *m) noexcept nogil:
    free(m.owned)
    free(m.counted)
    free(m.renamed)


# Have the header in memory where it may be changed, and grow by 128 bytes. False when out of memory.
cdef bint own_header(Inbound *m) noexcept nogil


cdef inline size_t stored_size(StreamCore s, size_t subject_n, size_t hdr_n, size_t msg_n) noexcept nogil:
    """Bytes of a message in the stream's store."""
    return subject_n + hdr_n + msg_n + 16 if s.cfg.memory else record_size(subject_n, hdr_n, msg_n)


cdef inline bint transform_subject(StreamCore s, Local *local, Inbound *m) noexcept nogil:
    """Its subject becomes what the stream's transform makes of it. False when out of memory."""
    cdef char[SUBJECT_ROOM] few
    cdef size_t n
    m.published = m.subject
    if s.itr == NULL or not transform_matches(s.itr, m.subject.p, m.subject.n):
        return True
    n = transform_apply(s.itr, m.subject.p, m.subject.n, &local.ps.rng, True, few, SUBJECT_ROOM)
    m.renamed = <char *> malloc(n + 1)
    if m.renamed == NULL:
        return False
    if n <= SUBJECT_ROOM:
        memcpy(m.renamed, few, n)
    else:
        n = transform_apply(s.itr, m.subject.p, m.subject.n, &local.ps.rng, True, m.renamed, n)
    m.subject.p = m.renamed
    m.subject.n = n
    return True
