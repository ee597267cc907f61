"""A message on its way into a stream."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from gnats.core.messages.msgtrace cimport MsgTrace
from gnats.core.runtime.slice cimport Slice
from gnats.core.subjects.transform cimport transform_apply, transform_matches
from gnats.jetstream.engine.barrier cimport JsPoller
from gnats.jetstream.engine.shortage cimport report_shortage
from gnats.jetstream.state.headers cimport MsgHeaders
from gnats.jetstream.state.streamcore cimport StreamCore
from gnats.store.format.record cimport record_size

cdef enum:
    SUBJECT_ROOM = 256   # bytes of a subject that fit on the stack
    MAX_HEADER = 65535   # bytes


# A message that is being handled. `hdr` is `owned` when that is set, else memory of the caller's.
cdef struct Inbound:
    Slice subject
    Slice published      # the subject before the stream's transform; n is 0: the same
    Slice reply          # n is 0 without one
    char *hdr
    size_t hdr_n
    const char *msg      # the payload, n bytes
    size_t n
    # freed by inbound_free(); NULL for none
    char *owned          # the header
    char *counted        # the payload that an increment made
    char *renamed        # the transformed subject
    Slice value          # the number in `counted`, in decimal
    uint64_t seq         # a mirror's message: the sequence that it must get; else 0
    int64_t ts           # a mirror's message: its time, ns since 1970; else 0
    int64_t ttl          # seconds, 0: none; the checks set it
    uint8_t ttl_invalid  # Nats-TTL cannot be parsed; the checks set it
    MsgTrace *trace      # NULL: not traced
    uint8_t sourced      # made by the server or by another stream: publishers' header rules do not apply
    MsgHeaders h         # the parsed header


cdef inline void inbound_init(Inbound *m) noexcept nogil:
    """Set all but subject, header and payload, which the caller sets."""
    m.published.n = m.reply.n = 0
    m.published.p = m.reply.p = NULL
    m.owned = m.counted = m.renamed = NULL
    m.value.p = NULL
    m.value.n = 0
    m.seq = 0
    m.ts = 0
    m.ttl = 0
    m.ttl_invalid = False
    m.trace = NULL
    m.sourced = False
    m.h.found = 0


cdef inline void inbound_free(Inbound *m) noexcept nogil:
    free(m.owned)
    free(m.counted)
    free(m.renamed)


# Copy the header into memory that may be changed, with room for 128 more bytes, and parse it again. False when out of
# memory.
cdef bint own_header(Inbound *m) noexcept nogil


cdef inline size_t stored_size(StreamCore s, size_t subject_n, size_t hdr_n, size_t msg_n) noexcept nogil:
    """Return the bytes that a message uses in the stream's store."""
    return subject_n + hdr_n + msg_n + 16 if s.cfg.memory else record_size(subject_n, hdr_n, msg_n)


cdef inline bint transform_subject(StreamCore s, JsPoller *jp, Inbound *m) noexcept nogil:
    """Apply the stream's transform to the subject. False when out of memory."""
    cdef char[SUBJECT_ROOM] few
    cdef size_t n
    if s.itr == NULL or not transform_matches(s.itr, m.subject.p, m.subject.n):
        return True
    n = transform_apply(s.itr, m.subject.p, m.subject.n, &jp.ps.rng, True, few, SUBJECT_ROOM)
    m.renamed = <char *> malloc(n + 1)
    if m.renamed == NULL:
        report_shortage(jp.ps)
        return False
    if n <= SUBJECT_ROOM:
        memcpy(m.renamed, few, n)
    else:
        n = transform_apply(s.itr, m.subject.p, m.subject.n, &jp.ps.rng, True, m.renamed, n)
    m.published = m.subject
    m.subject.p = m.renamed
    m.subject.n = n
    return True
