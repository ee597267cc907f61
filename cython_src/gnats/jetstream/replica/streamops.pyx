"""Entries of a stream's Raft group; see streamops.pxd."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from gnats.codec.s2 cimport s2_bound, s2_decode_block, s2_encode_block
from gnats.core.runtime.slice cimport Slice
from gnats.includes.text cimport put
from gnats.includes.varint cimport MAX_VARINT, get_uvarint, put_uvarint
from gnats.jetstream.publish.inbound cimport Inbound, inbound_init
from gnats.jetstream.state.headers cimport parse_headers
from gnats.raft.messages cimport get16, get32, get64, put16, put32, put64

cdef enum:
    SOURCED = 1                      # the flag
    SHORTEST = 26                    # bytes of a message without contents and flags
    MOST_DECODED = 65 << 20          # bytes: the largest payload, and its header


cdef size_t stream_msg_room(const StreamMsgOp *m) noexcept nogil:
    return (1 + 2 + m.batch.n + MAX_VARINT + 1 + SHORTEST + m.subject.n + m.reply.n + m.hdr.n + m.msg.n + MAX_VARINT)


cdef inline char *put_slice(char *to, const Slice *s) noexcept nogil:
    return put(to, s.p, s.n) if s.n else to   # memcpy must not be given NULL


cdef inline char *put_counted(char *to, const Slice *s) noexcept nogil:
    return put_slice(put16(to, <uint16_t> s.n), s)


cdef size_t put_stream_msg(char *to, const StreamMsgOp *m) noexcept nogil:
    cdef char *op = to
    cdef char *end
    if m.batch.n:
        to[0] = BATCH_COMMIT_MSG_OP if m.commits else BATCH_MSG_OP
        op = put_counted(to + 1, &m.batch)
        op = <char *> put_uvarint(<uint8_t *> op, m.batch_seq)
    op[0] = STREAM_MSG_OP
    end = put64(put64(op + 1, m.seq), <uint64_t> m.ts)
    end = put_counted(put_counted(put_counted(end, &m.subject), &m.reply), &m.hdr)
    end = put_slice(put32(end, <uint32_t> m.msg.n), &m.msg)
    end = <char *> put_uvarint(<uint8_t *> end, SOURCED if m.sourced else 0)
    if m.subject.n + m.reply.n + m.hdr.n + m.msg.n > COMPRESS_OVER:
        end = compress(op, end)
    return end - to


cdef char *compress(char *op, char *end) noexcept nogil:
    """Compress a message in place if that makes it shorter; return its end."""
    cdef size_t n = end - op - 1
    cdef uint8_t *block = <uint8_t *> malloc(s2_bound(n))
    cdef int64_t size
    if block == NULL:
        return end
    size = s2_encode_block(<uint8_t *> op + 1, n, block)
    if 0 < size < <int64_t> n:
        op[0] = COMPRESSED_STREAM_MSG_OP
        end = put(op + 1, <char *> block, size)
    free(block)
    return end


cdef inline bint take_bytes(const char **at, const char *end, size_t n, Slice *s) noexcept nogil:
    if n > <size_t> (end - at[0]):
        return False
    s.p = <char *> at[0]
    s.n = n
    at[0] += n
    return True


cdef inline bint take_counted(const char **at, const char *end, Slice *s) noexcept nogil:
    if end - at[0] < 2:
        return False
    at[0] += 2
    return take_bytes(at, end, get16(at[0] - 2), s)


cdef bint decode_batch(const char **at, const char *end, StreamMsgOp *m) noexcept nogil:
    memset(m, 0, sizeof(StreamMsgOp))
    if at[0] == end:
        return False
    if at[0][0] != BATCH_MSG_OP and at[0][0] != BATCH_COMMIT_MSG_OP:
        return True
    m.commits = at[0][0] == BATCH_COMMIT_MSG_OP
    at[0] += 1
    return take_counted(at, end, &m.batch) and m.batch.n != 0 and (
        get_uvarint(<const uint8_t **> at, <const uint8_t *> end, &m.batch_seq)) and at[0] != end


cdef int decode_stream_msg(const char *data, size_t n, StreamMsgOp *m) noexcept nogil:
    cdef const char *at = data
    cdef const char *end = data + n
    if not decode_batch(&at, end, m):
        return BAD_STREAM_OP
    if at[0] == STREAM_MSG_OP:
        return 0 if decode_msg(at + 1, end, m) else BAD_STREAM_OP
    return decode_compressed(at + 1, end, m) if at[0] == COMPRESSED_STREAM_MSG_OP else BAD_STREAM_OP


cdef int decode_compressed(const char *at, const char *end, StreamMsgOp *m) noexcept nogil:
    cdef const uint8_t *block = <const uint8_t *> at
    cdef uint64_t size = 0
    if not get_uvarint(&block, <const uint8_t *> end, &size) or size > MOST_DECODED or size == 0:
        return BAD_STREAM_OP
    m.owned = <char *> malloc(size)
    if m.owned == NULL:
        return STREAM_OP_NO_MEMORY
    if s2_decode_block(<const uint8_t *> at, end - at, <uint8_t *> m.owned, size) == 0 and (
            decode_msg(m.owned, m.owned + size, m)):
        return 0
    free(m.owned)
    m.owned = NULL
    return BAD_STREAM_OP


cdef bint decode_msg(const char *at, const char *end, StreamMsgOp *m) noexcept nogil:
    cdef uint64_t flags = 0
    if end - at < SHORTEST:
        return False
    m.seq = get64(at)
    m.ts = <int64_t> get64(at + 8)
    at += 16
    if not take_counted(&at, end, &m.subject) or not take_counted(&at, end, &m.reply) or (
            not take_counted(&at, end, &m.hdr)) or end - at < 4:
        return False
    at += 4
    if not take_bytes(&at, end, get32(at - 4), &m.msg):
        return False
    get_uvarint(<const uint8_t **> &at, <const uint8_t *> end, &flags)   # older servers write none
    m.sourced = flags & SOURCED != 0
    return True


cdef void inbound_of(const StreamMsgOp *op, Inbound *m) noexcept nogil:
    inbound_init(m)
    m.subject = op.subject
    m.hdr, m.hdr_n = op.hdr.p, op.hdr.n
    m.msg, m.n = op.msg.p, op.msg.n
    m.ts = op.ts
    m.sourced = op.sourced
    if m.hdr_n:
        parse_headers(m.hdr, m.hdr_n, &m.h)


# ---- for Python ------------------------------------------------------------------------------------------------------

def read_stream_msg(bytes data not None) -> tuple:
    """Decode an entry with a message: (subject, reply, header, payload, seq, ts, sourced, batch), `batch` being
    (id, number, whether it is the last) or None. Raises ValueError, MemoryError."""
    cdef StreamMsgOp m
    cdef int rc = decode_stream_msg(data, len(data), &m)
    if rc == STREAM_OP_NO_MEMORY:
        raise MemoryError
    if rc < 0:
        raise ValueError("not a stream's message")
    try:
        return (
            m.subject.p[:m.subject.n], m.reply.p[:m.reply.n], m.hdr.p[:m.hdr.n], m.msg.p[:m.msg.n], m.seq, m.ts,
            m.sourced, (m.batch.p[:m.batch.n], m.batch_seq, m.commits) if m.batch.n else None)
    finally:
        free(m.owned)


def write_stream_msg(
    bytes subject not None, bytes reply not None, bytes hdr not None, bytes msg not None, uint64_t seq, int64_t ts,
    bint sourced=False, tuple batch=None,
) -> bytes:
    """Encode an entry with a message; see read_stream_msg(). Raises ValueError for what is too long."""
    cdef StreamMsgOp m
    cdef bytes out
    memset(&m, 0, sizeof(m))
    if max(len(subject), len(reply), len(hdr), len(batch[0]) if batch else 0) > 0xffff or len(msg) > 0xffffffff:
        raise ValueError("too long for an entry")
    m.subject.p, m.subject.n = subject, len(subject)
    m.reply.p, m.reply.n = reply, len(reply)
    m.hdr.p, m.hdr.n = hdr, len(hdr)
    m.msg.p, m.msg.n = msg, len(msg)
    m.seq, m.ts, m.sourced = seq, ts, sourced
    if batch:
        m.batch.p, m.batch.n = <bytes> batch[0], len(batch[0])
        m.batch_seq, m.commits = batch[1], batch[2]
    out = bytes(stream_msg_room(&m))
    return out[:put_stream_msg(out, &m)]
